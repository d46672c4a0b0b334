"""Seatbelt: the wall of macOS, as the text of a profile for ``sandbox-exec``.

Deny by default; then the system's own folders for reading, the grants, the work folder and the temporary folder, and at
most one port of the loopback for the proxy. macOS has no network namespace, so the loopback as a whole is never
allowed: every service of the host listens there. In a profile the last rule that fits decides; rules about writing are
therefore sorted from the outermost folder to the innermost.

The text is made by pure functions and tested without a Mac. No Mac has run it yet: ``probe_seatbelt`` tries both that
programs start and that the wall holds before anything is claimed.
"""

from __future__ import annotations

import platform
import posixpath
import subprocess
import tempfile
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from sandbox_kernel.errors import EnforcerUnavailable, InvalidRequest, PolicyViolation
from sandbox_kernel.policy import Grant

SANDBOX_EXEC = "/usr/bin/sandbox-exec"

_HOMEBREW_PARTS = ("bin", "sbin", "lib", "libexec", "opt", "Cellar", "Frameworks", "include", "share", "etc/openssl@3")
#: Readable in every sandbox: what programs are made of. Folders that also hold data (Homebrew's etc and var, all of
#: /private/etc and /Library) are left out but for the named parts.
_SYSTEM_FOLDERS = (
    *("/System", "/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec", "/usr/share"),
    *("/Library/Apple", "/Library/Frameworks", "/Library/Developer/CommandLineTools"),
    *("/private/etc/ssl", "/private/var/db/dyld", "/private/var/db/timezone", "/private/var/select", "/dev/fd"),
    *(f"/opt/homebrew/{part}" for part in _HOMEBREW_PARTS),
    *(f"/usr/local/{part}" for part in _HOMEBREW_PARTS),
)
_SYSTEM_FILES = (
    *("/", "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/autofs_nowait", "/dev/dtracehelper"),
    *("/private/etc/localtime", "/private/etc/protocols", "/private/etc/services", "/private/etc/hosts"),
)
#: The links through which everybody names three folders; what a rule names is always the real path.
_PRIVATE = ("/etc", "/tmp", "/var")
_SYSCTLS = (
    *("hw.activecpu", "hw.byteorder", "hw.cacheconfig", "hw.cachelinesize", "hw.cachelinesize_compat", "hw.cpufamily"),
    *("hw.cputype", "hw.l1dcachesize", "hw.l1icachesize", "hw.l2cachesize", "hw.l3cachesize", "hw.logicalcpu"),
    *("hw.logicalcpu_max", "hw.machine", "hw.memsize", "hw.model", "hw.ncpu", "hw.nperflevels", "hw.packages"),
    *("hw.pagesize", "hw.pagesize_compat", "hw.physicalcpu", "hw.physicalcpu_max", "kern.argmax", "kern.hostname"),
    *("kern.maxfilesperproc", "kern.maxproc", "kern.osproductversion", "kern.osrelease", "kern.ostype"),
    *("kern.osvariant_status", "kern.osversion", "kern.usrstack64", "kern.version", "machdep.cpu.brand_string"),
    *("sysctl.proc_cputype", "vm.loadavg"),
)
_SYSCTL_PREFIXES = ("hw.optional.", "hw.perflevel")
_MACH_SERVICES = (
    *("com.apple.bsd.dirhelper", "com.apple.system.logger", "com.apple.system.notification_center"),
    *("com.apple.system.opendirectoryd.libinfo", "com.apple.system.opendirectoryd.membership"),
)


def seatbelt_profile(
    grants: Iterable[Grant], *, work: str, tmp: str, network_port: int | None = None, spawn: bool = True
) -> str:
    """The profile for one sandbox. Paths are real ones (see ``in_place_paths``); a hostile one is a PolicyViolation."""
    grants = tuple(grants)
    rights = {_real(grant.source): grant.writable for grant in sorted(grants, key=lambda grant: grant.writable)}
    rights |= {_real(work): True, _real(tmp): True}
    # The innermost folder must come last. A folder sorts before all that is in it, as its path is shorter.
    paths = sorted(rights, key=lambda path: (path.count("/"), path))
    links = {_real(grant.target) for grant in grants if grant.target != grant.source}
    parents = {parent for path in (*_SYSTEM_FOLDERS, *_SYSTEM_FILES, *paths, *links) for parent in _parents(path)}
    lines = [
        "(version 1)",
        "(deny default)",
        "(allow process-exec)",
        *(["(allow process-fork)"] if spawn else []),
        "(allow signal (target same-sandbox))",
        "(allow process-info* (target same-sandbox))",
        _rule("allow sysctl-read", [("sysctl-name", _SYSCTLS), ("sysctl-name-prefix", _SYSCTL_PREFIXES)]),
        _rule("allow mach-lookup", [("global-name", _MACH_SERVICES)]),
        "(allow ipc-posix-sem)",
        '(allow ipc-posix-shm* (ipc-posix-name-regex #"^/psm_"))',
        _rule("allow file-read*", [("subpath", (*_SYSTEM_FOLDERS, *paths)), ("literal", _SYSTEM_FILES)]),
        # Programs ask what kind of thing each parent of a path is (realpath); they may not list it.
        _rule("allow file-read-metadata", [("literal", sorted({*parents, *links, *_PRIVATE}))]),
        _rule("allow file-map-executable", [("subpath", (*_SYSTEM_FOLDERS, *paths))]),
        '(allow file-write-data (require-all (path "/dev/null") (vnode-type CHARACTER-DEVICE)))',
        *(_rule(f"{'allow' if rights[path] else 'deny'} file-write*", [("subpath", (path,))]) for path in paths),
        "(deny network*)",
    ]
    if network_port is not None:
        lines.append(f'(allow network-outbound (remote ip "localhost:{_port(network_port)}"))')
    return "\n".join(lines) + "\n"


def seatbelt_argv(
    command: Sequence[str],
    grants: Iterable[Grant],
    *,
    work: str,
    tmp: str,
    network_port: int | None = None,
    spawn: bool = True,
) -> list[str]:
    """The command line that runs a command behind the profile."""
    if not command or not command[0] or any("\0" in word for word in command):
        raise InvalidRequest(f"command {list(command)!r} cannot be started: it is empty or has a NUL character")
    profile = seatbelt_profile(grants, work=work, tmp=tmp, network_port=network_port, spawn=spawn)
    return [SANDBOX_EXEC, "-p", profile, "--", *command]


def seatbelt_weaknesses() -> tuple[str, ...]:
    """What this wall does not hold, each as one sentence for the report."""
    return (
        "no PID namespace: daemons that leave the process group are found and killed with best effort only",
        "no memory limit by the kernel: a watchdog measures the processes and kills them, with a delay",
        "no process limit of its own: RLIMIT_NPROC counts all processes of the user",
        "no disk limit on the work folder",
        "the names of some system services and the hardware's details are visible",
        "sandbox-exec is deprecated by Apple, though it is in all current versions of macOS",
    )


def probe_seatbelt() -> None:
    """Raise ``EnforcerUnavailable`` unless a real program runs behind a real profile and cannot read beyond it."""
    system = platform.system()
    if system != "Darwin":
        raise EnforcerUnavailable(
            "seatbelt", f"it is a part of macOS and this is {system}; use bubblewrap on Linux, or the wasm backend"
        )
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-probe-") as folder:
        root = Path(folder).resolve()
        for name in ("work", "tmp", "outside"):
            (root / name).mkdir()
            (root / name / "canary").write_text("canary")
        inside, outside = (_try_to_read(root, root / name / "canary") for name in ("work", "outside"))
    if inside.returncode:
        raise EnforcerUnavailable(
            "seatbelt",
            f"a program does not start behind the profile: {inside.stderr.strip() or inside.returncode}; "
            "if this process is sandboxed itself, start it outside, else use the wasm backend",
        )
    if not outside.returncode:
        raise EnforcerUnavailable(
            "seatbelt", "a file outside the sandbox could be read behind the profile; use the wasm backend"
        )


def _try_to_read(root: Path, canary: Path) -> subprocess.CompletedProcess[str]:
    argv = seatbelt_argv(["/bin/cat", str(canary)], (), work=str(root / "work"), tmp=str(root / "tmp"), spawn=False)
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=10, env={}, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnforcerUnavailable(
            "seatbelt", f"{SANDBOX_EXEC} does not run: {error}; it is a part of macOS, check the installation"
        ) from None


def _rule(head: str, filters: Sequence[tuple[str, Iterable[str]]]) -> str:
    parts = [f"  ({name} {_quoted(value)})" for name, values in filters for value in values]
    return "\n".join([f"({head}", *parts]) + ")"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _real(path: str) -> str:
    """The path as the kernel sees it, or a PolicyViolation for one that a profile must not carry."""
    if not path.startswith("/") or ".." in path.split("/"):
        raise PolicyViolation(f"path {path!r} must be absolute and without '..' to stand in a seatbelt profile")
    if any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in path):
        raise PolicyViolation(f"path {path!r} has control characters or is not UTF-8; rename it or allow its parent")
    # normpath keeps two leading slashes, which POSIX lets mean something else.
    plain = "/" + posixpath.normpath(path).lstrip("/")
    if plain == "/":
        raise PolicyViolation("allowing '/' would allow the whole disk; name the folders that are needed")
    if plain in _PRIVATE or plain.startswith(tuple(f"{link}/" for link in _PRIVATE)):
        return "/private" + plain
    return plain


def _parents(path: str) -> list[str]:
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[:count]) for count in range(1, len(parts))]


def _port(port: int) -> int:
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise PolicyViolation(f"proxy port {port!r} must be a number from 1 to 65535")
    return port
