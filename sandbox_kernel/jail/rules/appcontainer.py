"""AppContainer: the wall of Windows, as a plan of what to ask the system for.

A process in an AppContainer reaches only objects whose access list names its package, and without capabilities it has
no network, the loopback included. A Job Object holds memory, processes and time, and ends the whole tree when its last
handle is closed. The plan is plain data with the very bytes that the system calls take. The thin layer that would make
those calls does not exist yet: ``probe_appcontainer`` says so, and nothing is claimed for Windows.
"""

from __future__ import annotations

import hashlib
import platform
import re
import struct
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sandbox_kernel.errors import EnforcerUnavailable, InvalidRequest, PolicyViolation
from sandbox_kernel.limits import DEFAULT_MEMORY_MB, MIB, Limits
from sandbox_kernel.model import check_env
from sandbox_kernel.policy import Grant

JOB_TIME, ACTIVE_PROCESS, PROCESS_MEMORY, JOB_MEMORY = 0x4, 0x8, 0x100, 0x200
DIE_ON_UNHANDLED_EXCEPTION, KILL_ON_JOB_CLOSE = 0x400, 0x2000

#: Handles, clipboard (both ways), system parameters, display settings, global atoms, desktop, ending Windows.
UI_RESTRICTIONS = 0xFF

CREATE_SUSPENDED, CREATE_UNICODE_ENVIRONMENT = 0x4, 0x400
EXTENDED_STARTUPINFO_PRESENT, CREATE_NO_WINDOW = 0x80000, 0x08000000
ATTRIBUTE_HANDLE_LIST, ATTRIBUTE_SECURITY_CAPABILITIES = 0x20002, 0x20009
ATTRIBUTE_JOB_LIST, ATTRIBUTE_CHILD_PROCESS_POLICY = 0x2000D, 0x2000E

_TICKS_PER_SECOND = 10_000_000
_LONGEST_COMMAND_LINE = 32767
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_FOLDER_PATH = re.compile(r"[A-Za-z]:\\[^\x00-\x1f\x7f<>:\"/|?*]*\Z")
_DEVICE_NAME = re.compile(r"(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³])\s*(\.|\Z)", re.IGNORECASE)


@dataclass(frozen=True)
class AppContainerPlan:
    """All that is asked of the system for one run, in the order in which it is used."""

    name: str
    sid: str
    capabilities: tuple[str, ...]
    grants: tuple[tuple[str, ...], ...]
    job_limits: bytes
    ui_restrictions: int
    attributes: tuple[int, ...]
    creation_flags: int
    command_line: str
    environment: bytes
    revokes: tuple[tuple[str, ...], ...]


def appcontainer_plan(
    command: Sequence[str],
    grants: Iterable[Grant],
    *,
    name: str,
    work: str,
    limits: Limits | None = None,
    memory_mb: int = DEFAULT_MEMORY_MB,
    env: Mapping[str, str] | None = None,
    single_files: Collection[str] = (),
    spawn: bool = True,
) -> AppContainerPlan:
    """Plan one run. ``name`` must be unique to it, as rights belong to the name's SID until they are taken back.

    ``single_files`` are the sources of grants that are files: they take no inheritable rights.
    """
    limits = limits or Limits()
    sid = appcontainer_sid(name)
    rights = {_checked_path(grant.source): grant.writable for grant in sorted(grants, key=lambda grant: grant.writable)}
    rights[_checked_path(work)] = True
    child_policy = () if spawn else (ATTRIBUTE_CHILD_PROCESS_POLICY,)
    return AppContainerPlan(
        name=name,
        sid=sid,
        capabilities=(),
        grants=tuple(
            ("icacls", path, "/grant", f"*{sid}:{_rights(writable, path in single_files)}", "/Q")
            for path, writable in rights.items()
        ),
        job_limits=job_limits(limits, memory_mb, spawn=spawn),
        ui_restrictions=UI_RESTRICTIONS,
        attributes=(ATTRIBUTE_SECURITY_CAPABILITIES, ATTRIBUTE_HANDLE_LIST, ATTRIBUTE_JOB_LIST, *child_policy),
        creation_flags=(
            CREATE_SUSPENDED | CREATE_UNICODE_ENVIRONMENT | EXTENDED_STARTUPINFO_PRESENT | CREATE_NO_WINDOW
        ),
        command_line=command_line(command),
        environment=environment_block(work, env or {}),
        revokes=tuple(("icacls", path, "/remove", f"*{sid}", "/Q") for path in rights),
    )


def appcontainer_sid(name: str) -> str:
    """The package SID that Windows derives from a container's name: seven words of a hash of its lower case."""
    if not _NAME.match(name):
        raise InvalidRequest(f"container name {name!r} must be 1 to 64 letters, digits, dots, dashes or underscores")
    digest = hashlib.sha256(name.lower().encode("utf-16-le")).digest()
    return "S-1-15-2-" + "-".join(str(word) for word in struct.unpack("<7I", digest[:28]))


def job_limits(limits: Limits, memory_mb: int, *, spawn: bool = True) -> bytes:
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION in its 64-bit layout. Breaking away from the job is never allowed."""
    flags = KILL_ON_JOB_CLOSE | DIE_ON_UNHANDLED_EXCEPTION | JOB_MEMORY | PROCESS_MEMORY | ACTIVE_PROCESS
    ticks = 0
    if limits.cpu_seconds is not None:
        flags |= JOB_TIME
        ticks = max(1, int(limits.cpu_seconds * _TICKS_PER_SECOND))
    processes = limits.processes if spawn else 1
    # Time per process and job, flags, working set (two), processes, affinity, priority and scheduling class.
    basic = struct.pack("<qqI4xQQI4xQII", 0, ticks, flags, 0, 0, processes, 0, 0, 0)
    io_counters = bytes(48)
    memory = memory_mb * MIB
    return basic + io_counters + struct.pack("<QQQQ", memory, memory, 0, 0)


def command_line(command: Sequence[str]) -> str:
    """The words as the one string that Windows passes on, quoted as the C runtime reads it back."""
    if not command or not command[0] or any("\0" in word for word in command):
        raise InvalidRequest(f"command {list(command)!r} cannot be started: it is empty or has a NUL character")
    if '"' in command[0] or command[0].lower().rstrip(". ").endswith((".bat", ".cmd")):
        # cmd.exe reads the arguments of a batch file by rules of its own; no quoting is safe there.
        raise InvalidRequest(f"program {command[0]!r} is a batch file or has a quote in its name; name an .exe file")
    text = subprocess.list2cmdline(command)
    if len(text) >= _LONGEST_COMMAND_LINE:
        raise InvalidRequest(f"command line has {len(text)} characters; Windows takes {_LONGEST_COMMAND_LINE - 1}")
    return text


def environment_block(work: str, env: Mapping[str, str]) -> bytes:
    """The whole environment, nothing of the host's: sorted without regard to case, UTF-16, ended by an empty entry."""
    check_env(env, loader_names_allowed=True)
    own = {"PATH": r"C:\Windows\System32;C:\Windows", "SystemRoot": r"C:\Windows"}
    own |= dict.fromkeys(("LOCALAPPDATA", "TEMP", "TMP", "USERPROFILE"), work)
    merged = {name.upper(): (name, value) for name, value in own.items()}
    seen: set[str] = set()
    for name, value in env.items():
        if name.upper() in seen:
            raise InvalidRequest(f"environment name {name!r} is there twice; Windows does not tell case apart")
        seen.add(name.upper())
        merged[name.upper()] = (name, value)
    entries = "".join(f"{name}={value}\0" for _, (name, value) in sorted(merged.items()))
    return (entries + "\0").encode("utf-16-le")


def appcontainer_weaknesses() -> tuple[str, ...]:
    """What this wall would not hold, each as one sentence for the report."""
    return (
        "what Windows shows to all application packages (its own folders, installed programs) stays readable",
        "rights on granted folders are written to the disk and must be taken back after the run, a crash included",
        "no network but all or none: domains cannot be allowed, as the loopback is closed to the proxy too",
        "no disk limit on the work folder",
    )


def probe_appcontainer() -> None:
    """Raise ``EnforcerUnavailable``: there is a plan, and no layer yet that carries it out."""
    system = platform.system()
    if system != "Windows":
        raise EnforcerUnavailable(
            "appcontainer",
            f"it is a part of Windows and this is {system}; use bubblewrap on Linux, or the wasm backend",
        )
    raise EnforcerUnavailable(
        "appcontainer",
        "starting processes in an AppContainer is not implemented; run Jupyter in WSL 2, where bubblewrap works, "
        "or use the wasm backend",
    )


def _rights(writable: bool, single_file: bool) -> str:
    inherited = "" if single_file else "(OI)(CI)"
    return inherited + ("(M)" if writable else "(RX)")


def _checked_path(path: str) -> str:
    """A plain path on a local drive; shares, devices, streams and wildcards would grant more than is written."""
    parts = path.split("\\")[1:]
    if not _FOLDER_PATH.match(path) or any("\ud800" <= character <= "\udfff" for character in path):
        raise PolicyViolation(rf"path {path!r} must be a plain path on a local drive, like C:\data")
    if any(part in (".", "..") or part != part.rstrip(". ") or _DEVICE_NAME.match(part) for part in parts):
        raise PolicyViolation(f"path {path!r} has a part that Windows reads as something else; rename it")
    if not any(parts):
        raise PolicyViolation(f"allowing {path!r} would allow the whole drive; name the folders that are needed")
    return path.rstrip("\\")
