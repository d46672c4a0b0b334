"""What ``sandbox-kernel report`` says in containers, measured by the restrictions that their runtimes set, without one.

    sudo tests/in_containers.sh          # prints the table of docs/deploy.md

Each row is a set of flags of ``docker run`` and what they mean to the kernel: user, capabilities, system call filter,
paths of /proc that are covered, control groups that cannot be written. It needs root, to make the restrictions.
"""

import json
import sys
from dataclasses import dataclass

from sandbox_kernel.jail.rules.seccomp import (
    ALLOW,
    LOAD_WORD,
    OFFSET_NUMBER,
    Code,
    give,
    host_arch,
    instruction,
    load_argument,
    refuse,
    when_any_bit,
    when_equal,
)
from sandbox_kernel.jail.rules.syscalls import number
from tests.jail.degraded import CONTAINER, run_without

#: The calls that Docker's default profile refuses without CAP_SYS_ADMIN and that a sandbox could need; and the flags of
#: clone for namespaces. clone3 is answered as absent, because a filter cannot read its flags.
_REFUSED = (
    *("unshare", "setns", "mount", "umount2", "pivot_root", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount"),
    *("fspick", "mount_setattr", "keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd"),
)
_NAMESPACES = 0x7E020000
#: Paths of /proc that runtimes cover. The kernel then refuses every new mount of /proc below.
_MASKED = ("/proc/kcore", "/proc/keys", "/proc/timer_list")
_COVER = """
mount --make-rprivate /
for path in %s; do if [ -e "$path" ]; then mount --bind /dev/null "$path"; fi; done
if %s; then for group in /sys/fs/cgroup /sys/fs/cgroup/*; do mount -o remount,ro,bind "$group" 2>/dev/null; done; fi
exec "$@"
"""
_REPORT = """
import json
from sandbox_kernel.cli import main
main(["report", "--json", "--fresh"])
"""


@dataclass(frozen=True, kw_only=True)
class Container:
    """One way to start a container."""

    flags: str
    uid: int | None = None
    profile: bool = True
    masked: bool = True
    privileged: bool = False


CONTAINERS = (
    Container(flags="(none; root inside)"),
    Container(flags="`--user 1000`", uid=65534),
    Container(flags="`--user 1000 --security-opt seccomp=unconfined`", uid=65534, profile=False),
    Container(
        flags="`--user 1000 --security-opt seccomp=unconfined --security-opt systempaths=unconfined`",
        uid=65534, profile=False, masked=False,
    ),
    Container(flags="`--privileged`", profile=False, masked=False, privileged=True),
)  # fmt: skip


def docker_profile() -> bytes:
    """Return a filter of the shape of Docker's default profile, for a container without CAP_SYS_ADMIN."""
    code: list[Code] = [(instruction(LOAD_WORD, OFFSET_NUMBER),)]
    for name in _REFUSED:
        call = number(name, host_arch())
        if call is not None:
            code.append(when_equal(call, refuse(1)))
    clone, clone3 = number("clone", host_arch()), number("clone3", host_arch())
    assert clone is not None and clone3 is not None
    code.append(when_equal(clone3, refuse(38)))
    code.append(when_equal(clone, (*load_argument(0), *when_any_bit(_NAMESPACES, refuse(1)), *give(ALLOW))))
    return b"".join(part for each in (*code, give(ALLOW)) for part in each)


def before(container: Container) -> tuple[str, ...]:
    """Return the command that sets everything but the filter."""
    script = _COVER % (" ".join(_MASKED) if container.masked else "", "false" if container.privileged else "true")
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
    if container.privileged:
        return tuple(words)
    if container.uid is None:
        kept = ",".join(f"+{name}" for name in CONTAINER)
        return (*words, "setpriv", "--inh-caps=-all", f"--bounding-set=-all,{kept}")
    user = str(container.uid)
    return (*words, "setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--inh-caps=-all",
            "--bounding-set=-all")  # fmt: skip


def measure(container: Container) -> dict[str, object]:
    """Return the report of a container, or the words with which a sandbox is refused there."""
    filters = (docker_profile(),) if container.profile else ()
    done = run_without(_REPORT, *filters, before=before(container))
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        return {"refused": (done.stderr.strip() or done.stdout.strip()).splitlines()[-1]}


def row(container: Container, report: dict[str, object]) -> str:
    """Return a row of the table: the walls, how memory is limited, what is not enforced."""
    if "refused" in report:
        return f"| {container.flags} | refused | | {report['refused']} |"
    lines = [dict(line) for line in report["lines"]]  # type: ignore[attr-defined]
    walls = next(line["mechanism"] for line in lines if line["area"] == "files")
    memory = next(line["mechanism"] for line in lines if line["name"] == "memory")
    open_ones = [line["name"] for line in lines if not line["enforced"] and not line["absent"]]
    return f"| {container.flags} | {walls} | {memory} | {', '.join(open_ones) or 'nothing'} |"


if __name__ == "__main__":
    print("| flags of `docker run` | walls | memory is limited by | not enforced |\n|---|---|---|---|")
    for each in CONTAINERS:
        print(row(each, measure(each)))
        sys.stdout.flush()
