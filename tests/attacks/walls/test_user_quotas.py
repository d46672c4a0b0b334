"""What the kernel counts for each user: one sandbox cannot take all of it away from the others and from the host."""

import asyncio
import ctypes
import os
import resource

import pytest

from sandbox_kernel import ExecRequest, ExecResult, Sandbox
from sandbox_kernel.backends.process import ProcessBackend, ProcessConfig
from tests.jail.walls_and_groups import TIERS, Tier

pytestmark = pytest.mark.usefixtures("nothing_left")

COUNT = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
taken = 0
def take(act):
    global taken
    while taken < 5000:
        if act() < 0: break
        taken += 1
    print(taken, errno.errorcode.get(ctypes.get_errno()))
"""
INSTANCES = COUNT + "take(libc.inotify_init)"
WATCHES = COUNT + (
    "fd = libc.inotify_init()\n"
    "def watch():\n"
    "    os.makedirs(f'd/{taken}', exist_ok=True)\n"
    "    return libc.inotify_add_watch(fd, f'd/{taken}'.encode(), 2)\n"
    "take(watch)"
)
#: A blocked realtime signal is queued each time that it is sent.
SIGNALS = COUNT + (
    "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 1])\n"
    "take(lambda: libc.sigqueue(os.getpid(), signal.SIGRTMIN + 1, ctypes.c_void_p(0)))"
)
QUEUES = (
    COUNT
    + "libc.mq_open.argtypes = None\ntake(lambda: libc.mq_open(b'/q%d' % taken, os.O_CREAT | os.O_RDWR, 0o600, None))"
)
REQUESTS = COUNT + (
    "number = {'x86_64': 206, 'aarch64': 0}[os.uname().machine]\nplace = ctypes.c_ulong(0)\n"
    "def setup():\n"
    "    place.value = 0\n"
    "    return libc.syscall(ctypes.c_long(number), ctypes.c_long(64), ctypes.byref(place))\n"
    "take(setup)"
)

MOST = {"instances": (INSTANCES, 16), "watches": (WATCHES, 1024), "signals": (SIGNALS, 1024), "queues": (QUEUES, 1)}


def run(backend: ProcessBackend, code: str) -> ExecResult:
    return asyncio.run(backend.execute(ExecRequest(language="python", code=code, timeout=25)))


@pytest.fixture(params=[tier for tier in TIERS if tier.values[0].counted_by == "no groups"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ProcessBackend:
    tier: Tier = request.param
    tier.enter(monkeypatch)
    return ProcessBackend(ProcessConfig(pool_size=0), tier.enforcer)


@pytest.mark.parametrize("quota", MOST)
@pytest.mark.one_case
def test_a_sandbox_has_a_share_of_its_users_quota(backend: ProcessBackend, quota: str) -> None:
    enforcer = backend.enforcer
    if enforcer is not None and enforcer.name == "landlock" and os.geteuid() == 0 and quota in ("instances", "watches"):
        pytest.skip("behind Landlock a sandbox of root is a user of its own, with quotas of its own")
    code, most = MOST[quota]
    result = run(backend, code)
    assert int(result.stdout.split()[0]) <= most, result


@pytest.mark.one_case
def test_requests_of_the_whole_machine_cannot_be_taken(backend: ProcessBackend) -> None:
    assert run(backend, REQUESTS).stdout.split() == ["0", "ENOSYS"]


def test_forks_of_a_template_have_a_share_too_and_leave_the_host_its_own() -> None:
    libc = ctypes.CDLL(None)
    with Sandbox() as box:
        results = [box.run(INSTANCES + "\nprint(len(os.listdir('/proc/self/fd')))") for _ in range(4)]
        held = libc.inotify_init()
        assert held >= 0
        os.close(held)
    assert {result.stdout.split()[0] for result in results} == {"16"}


def test_the_limits_of_the_host_itself_are_as_they_were() -> None:
    before = [resource.getrlimit(kind) for kind in (resource.RLIMIT_SIGPENDING, resource.RLIMIT_MSGQUEUE)]
    with Sandbox() as box:
        assert box.run("1").ok
    assert before == [resource.getrlimit(kind) for kind in (resource.RLIMIT_SIGPENDING, resource.RLIMIT_MSGQUEUE)]
    with open("/proc/sys/user/max_inotify_instances") as file:
        assert int(file.read()) > 16
