"""Hosts that lack something, made by taking a call away from one child: nothing of this machine is changed."""

import marshal
import os
import subprocess
import sys
from pathlib import Path

import sandbox_kernel
from sandbox_kernel.jail.guest_programs import memory_file
from sandbox_kernel.jail.rules.seccomp import (
    ALLOW,
    LOAD_WORD,
    OFFSET_NUMBER,
    Code,
    build_filter,
    give,
    host_arch,
    instruction,
    load_argument,
    refuse,
    when_equal,
)

ROOT = Path(sandbox_kernel.__file__).parent.parent
_ARM = host_arch() == "aarch64"
_PRCTL, _PR_SET_SECCOMP, _SECCOMP = (167 if _ARM else 157), 22, (277 if _ARM else 317)
_EPERM, _EINVAL, _ENOSYS = 1, 22, 38

#: Loads filters that a file holds, one after the other, and becomes the command.
_LOADER = """
import marshal, os, sys
sys.path.insert(0, sys.argv[1])
import lockdown
with open(int(sys.argv[2]), "rb") as file: programs = marshal.load(file)
lockdown.no_new_privs()
for program in programs: lockdown.load_seccomp(program)
os.execv(sys.argv[3], sys.argv[3:])
"""


def no_namespaces() -> bytes:
    """As in most containers: no unshare, no clone of namespaces, no mount."""
    return build_filter(host_arch())


def no_landlock() -> bytes:
    """As on a kernel without it, or one that was booted without it."""
    return _program(instruction(LOAD_WORD, OFFSET_NUMBER), *when_equal(444, refuse(_ENOSYS)))


def no_seccomp() -> bytes:
    """As on a kernel that cannot filter calls; both ways to ask for it."""
    by_prctl = (*load_argument(0), *when_equal(_PR_SET_SECCOMP, refuse(_EINVAL)), *give(ALLOW))
    return _program(
        instruction(LOAD_WORD, OFFSET_NUMBER), *when_equal(_SECCOMP, refuse(_ENOSYS)), *when_equal(_PRCTL, by_prctl)
    )


def _program(*code: bytes) -> bytes:
    ending: Code = give(ALLOW)
    return b"".join((*code, *ending))


def run_without(program: str, *filters: bytes, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run Python code in a child that lacks what the filters take away."""
    spec_fd = memory_file("filters", marshal.dumps(filters))
    try:
        guest = str(ROOT / "sandbox_kernel" / "guest" / "gate")
        # The filter that bars seccomp comes last: it would bar the others too.
        argv = [*before, sys.executable, "-c", _LOADER, guest, str(spec_fd), sys.executable, "-c", program]
        return subprocess.run(
            argv,
            pass_fds=(spec_fd,),
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    finally:
        os.close(spec_fd)


#: What Docker leaves to root: enough to become somebody else, nothing to make namespaces or to look into processes.
CONTAINER = (
    *("chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap", "net_bind_service"),
    *("net_raw", "sys_chroot", "mknod", "audit_write", "setfcap"),
)


def run_like_in_a_container(program: str) -> subprocess.CompletedProcess[str]:
    """Run Python code as root with the capabilities and the filter that containers have; root only."""
    kept = ",".join(f"+{name}" for name in CONTAINER)
    return run_without(program, no_namespaces(), before=("setpriv", "--inh-caps=-all", f"--bounding-set=-all,{kept}"))


def run_without_free_namespaces(program: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a user namespace that may have no other below it, where only one user exists.

    The setting is the namespace's own and ends with it.
    """
    shell = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    argv = ["unshare", "--user", "--map-root-user", "sh", "-c", shell, "sh", sys.executable, "-c", program]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False, cwd="/", env=env)
