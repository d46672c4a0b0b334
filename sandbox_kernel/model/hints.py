"""Hints where people stumble: one sentence with what to write, made from how a run ended. Pure.

Each door passes what it knows (``Stumble``) and adds the hints to the notes of the result. The words of a program are
only searched for the messages of well-known errors, and a wrong guess costs one sentence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from enum import StrEnum, unique
from typing import TYPE_CHECKING

from sandbox_kernel.limits import MAX_MEMORY_MB, MIB, Limit, Status
from sandbox_kernel.model import notes
from sandbox_kernel.model.notes import Note, NoteKind, WantedKind, has_note
from sandbox_kernel.model.request import Language, is_own_place
from sandbox_kernel.model.units import duration_text, size_text
from sandbox_kernel.util.values import dataclass

if TYPE_CHECKING:
    from sandbox_kernel.model.result import ExecResult

#: How much of the end of an output is searched.
_SEARCHED = 4000
# Texts and not compiled: most runs need none of them, and ``re`` keeps those that were used.
_MISSING_FILE = (
    r"No such file or directory: ['\"]([^'\"\n]{1,300})['\"]",
    r"ENOENT: no such file or directory, \w+ '([^'\n]{1,300})'",
    r"(?m)^[\w./-]{1,60}: (?:line \d+: )?(?:cannot (?:open|access) )?'?([^':\n]{1,300})'?: No such file",
)
_READ_ONLY = (
    r"Read-only file system: ['\"]([^'\"\n]{1,300})['\"]",
    r"EROFS: read-only file system, \w+ '([^'\n]{1,300})'",
    r"(?m)^[\w./-]{1,60}: (?:line \d+: )?(?:cannot \w+ (?:\w+ )?)?'?(/[^':\n]{1,300})'?: Read-only file",
)
#: Walls of Landlock answer so where others say that a file is not there, or that its folder can only be read.
_DENIED = (
    r"Permission denied: ['\"](/[^'\"\n]{1,300})['\"]",
    r"EACCES: permission denied, \w+ '(/[^'\n]{1,300})'",
    r"(?m)^[\w./-]{1,60}: (?:line \d+: )?(?:cannot \w+ (?:\w+ )?)?'?(/[^':\n]{1,300})'?: Permission denied",
)
#: Nobody keeps data there: a program that is denied one of these wanted something else than a file of its user.
_KERNEL_PLACES = ("/proc", "/dev", "/sys", "/run", "/tmp", "/box")
#: A folder that was there before is renamed by copying under a layer, and so is what comes from another file system.
_OTHER_DEVICE = {
    r"Invalid cross-device link: ['\"]([^'\"\n]{1,300})['\"] -> ['\"]([^'\"\n]{1,300})['\"]": (
        "shutil.move({!r}, {!r})"
    ),
    r"EXDEV: cross-device link not permitted, rename '([^'\n]{1,300})' -> '([^'\n]{1,300})'": (
        "fs.cpSync('{0}', '{1}', {{recursive: true}}); fs.rmSync('{0}', {{recursive: true}})"
    ),
    r"renaming '([^'\n]{1,300})' failed: Invalid cross-device link": "mv '{0}' NEW; git add -A '{0}' NEW",
}
_NO_MODULE = r"No module named ['\"]([A-Za-z_][\w.]{0,80})['\"]"
#: How numpy, PyTorch and pyarrow say how much memory an allocation wanted, and their units.
_WANTED = r"(?:[Uu]nable to allocate|[Tt]ried to allocate|malloc of size) (\d{1,15}(?:\.\d{1,9})?) ?([KMGT]iB|B|b|)"
_UNITS = {"": 1, "b": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_WORK = "/box/"
#: A name that a hint repeats: one word, which is no option and reads as no sentence of ours.
_ONE_WORD = r"(?!-)[\w./@+~-]{1,200}"


@unique
class Spelling(StrEnum):
    """How a user writes what a hint advises."""

    #: As options: ``%sandbox --timeout 2m``, ``--timeout 2m``.
    OPTIONS = "options"
    #: As arguments of the library: ``timeout=120``.
    LIBRARY = "library"
    #: As arguments of a tool call. A model cannot choose memory, files or packages.
    TOOL = "tool"


@dataclass(frozen=True)
class Stumble:
    """What a door knows of a run.

    ``line`` stands before an option there (``%sandbox ``, or nothing). ``beside`` says whether a path, relative to
    ``folder`` of the notebook or command, exists on the host; None where whoever reads the answer must not be told.
    ``running``: it was a cell of a session that goes on. ``hidden`` says whether a name is hidden from programs.
    Defaults of the notebook do not change the options ``own``, which the first line of the cell sets.
    """

    line: str = "%sandbox "
    beside: Callable[[str], bool] | None = None
    folder: str = ""
    running: bool = False
    hidden: Callable[[str], bool] | None = None
    own: Collection[str] = ()
    spelling: Spelling = Spelling.OPTIONS

    def write(self, option: str, value: str, *, library: str = "", tool: str = "") -> str:
        """Return what to write at this door; empty where nothing helps."""
        if self.spelling is Spelling.LIBRARY:
            return library
        line = "%%sandbox " if option in self.own else self.line
        return tool if self.spelling is Spelling.TOOL else f"{line}{option} {value}".rstrip()


def spelled(note: Note, stumble: Stumble) -> Note:
    """Return a note of a result with its option as a user writes it at this door; backends name the option alone."""
    if note.kind is not NoteKind.NO_NETWORK:
        return note
    return notes.no_network(note.wanted.what if note.wanted else "", stumble.line)


def hints(result: ExecResult, stumble: Stumble) -> tuple[Note, ...]:
    """Return what a user could write to get further; nothing when all went well."""
    evalue = result.error.evalue[-_SEARCHED:] if result.error else ""
    said = f"{result.stderr[-_SEARCHED:]}\n{evalue}".strip()
    if result.ok:
        # A line of a shell in a cell fails alone, and a program may go on without its file.
        said = f"{said}\n{result.stdout[-_SEARCHED:]}"
        return (*_missing_file(said, result, stumble), *_not_renamed(said))
    found: list[Note] = []
    if result.status is Status.TIMEOUT and result.timeout:
        more = result.timeout * 4
        write = stumble.write(
            "--timeout", duration_text(more), library=f"timeout={more:g}", tool=f"timeout_secs={more:g}"
        )
        found.append(notes.hint_time(write))
    # A bare MemoryError says nothing itself.
    bare = result.error is not None and result.error.ename == "MemoryError"
    out_of_memory = result.status is Status.MEMORY_EXCEEDED and result.limit is not Limit.GPU_MEMORY
    if result.memory_limit_mb and (out_of_memory or bare) and not has_note(result.notes, NoteKind.MANY_PROCESSES):
        found.append(_more_memory(said, result, result.memory_limit_mb, stumble))
    if found:
        return tuple(found)
    found += [*_missing_file(said, result, stumble), *_not_renamed(said)]
    if stumble.spelling is Spelling.LIBRARY:
        found += _for_library(said, result)
    found += [] if found else _closed_place(said, stumble)
    if (module := re.search(_NO_MODULE, said)) is not None:
        name = module[1].split(".")[0]
        python = stumble.write("--python", "PATH", library="session(python=PATH)")
        native = stumble.write("--backend", "process", library="backend='process'")
        in_wasm = result.isolation == "wasm"
        # In a notebook a press installs it for the session.
        pip = f"%pip install {name}" if stumble.running else f"pip install {name} on the host"
        fetched = notes.hint_package(python and f"{pip}, or {python}", name)
        missing = notes.hint_package_in_wasm(native, name) if in_wasm else fetched
        found.append(_own_module(name, result, stumble) or missing)
    return tuple(found[:2])


def _more_memory(said: str, result: ExecResult, limit_mb: int, stumble: Stumble) -> Note:
    """Return the hint with a limit that would have been enough, if it is known how much was wanted, or twice it."""
    wanted = re.search(_WANTED, said)
    size = 0.0 if wanted is None else float(wanted[1]) * _UNITS[wanted[2][:1]]
    asked = result.wanted_memory_bytes or 0
    # What grows bit by bit has asked for little more than it has; nobody knows how far it would go.
    total = size + (result.peak_memory_bytes or 0) if size else asked if asked > limit_mb * 1.2 * MIB else 0
    needs_mb = int(total * 1.05) >> 20
    # Less than the limit, or more than there is: the error is about something else.
    known = needs_mb if limit_mb < needs_mb < MAX_MEMORY_MB else 0
    step_mb = 1024 if known > 1024 else 128
    more_mb = (known // step_mb + 1) * step_mb if known else limit_mb * 2
    write = stumble.write("--memory", size_text(more_mb << 20), library=f"memory_mb={more_mb}")
    about = f"{known / 1024:.1f} GB" if known > 1024 else f"{known} MB"
    return notes.hint_needs(write, about) if known else notes.hint_memory(write)


def _names(pattern: str, said: str) -> list[str]:
    """Return what errors of this form name. A program can print anything in their place, and a hint is our sentence."""
    return [name for name in re.findall(pattern, said) if re.fullmatch(_ONE_WORD, name)]


def _missing_file(said: str, result: ExecResult, stumble: Stumble) -> list[Note]:
    if result.here:
        return _hidden_file(said, stumble)
    if stumble.beside is None:
        return []
    for pattern in (*_MISSING_FILE, *_DENIED):
        for path in re.findall(pattern, said):  # any name, because it is one beside the notebook
            inner = path.removeprefix(_WORK)
            absolute = bool(stumble.folder) and inner.startswith(f"{stumble.folder}/")
            plain = os.path.relpath(inner, stumble.folder) if absolute else os.path.normpath(inner)
            elsewhere = plain.split("/")[0] in ("", "..", ".") or (pattern in _DENIED and not absolute)
            if not elsewhere and stumble.beside(plain):
                return [_beside(plain, result, stumble, absolute=absolute)]
    return []


def _hidden_file(said: str, stumble: Stumble) -> list[Note]:
    """Return the hint for a file that programs never see in a folder of the user, whether it is there or not."""
    paths = [os.path.normpath(path.removeprefix(_WORK)) for pattern in _MISSING_FILE for path in _names(pattern, said)]
    for plain in paths:
        if stumble.hidden is not None and not plain.startswith(("/", "..")) and stumble.hidden(plain):
            return [notes.hint_hidden(stumble.write("--env", "NAME=VALUE"), plain)]
    return []


def _not_renamed(said: str) -> list[Note]:
    """Return the hint for a folder that cannot be renamed in one step, in the words of who tried it."""
    for pattern, write in _OTHER_DEVICE.items():
        names = re.search(pattern, said)
        if names is not None and all(re.fullmatch(_ONE_WORD, name) for name in names.groups()):
            return [notes.hint_rename(write.format(*names.groups()), names[1])]
    return []


def _closed_place(said: str, stumble: Stumble) -> list[Note]:
    """Return the hint for a path that the walls deny or do not show, or that can only be read."""
    for pattern in (*_READ_ONLY, *_DENIED, *_MISSING_FILE):
        if (place := next(iter(_names(pattern, said)), None)) is not None and not place.startswith(_WORK):
            names = place.strip("/").split("/")
            top = f"/{names[0]}" if len(names) > 1 else "/"
            missing, writes = pattern in _MISSING_FILE, pattern in _READ_ONLY
            elsewhere = place.startswith(("/", "../")) and not is_own_place(top)  # what is there is not looked up
            if (missing and not elsewhere) or (pattern in _DENIED and top in _KERNEL_PLACES):
                continue
            inside = "/data" if missing else top
            mount = f"policy.mount(HOST, '{inside}'{', writable=True' if writes else ''})"
            option = f"HOST:{inside}{':rw' if writes else ''}"
            write = "" if is_own_place(top) else stumble.write("--mount", option, library=mount)
            return [notes.hint_place(write, place if missing else top)]
    return []


def _for_library(said: str, result: ExecResult) -> list[Note]:
    """Return hints for an error of the library: a domain, which other doors offer by themselves, and a missing file.

    Whether the file exists on the host is not looked up: the text of an error may go to whoever wrote the program.
    """
    wanted = [note.wanted.what for note in result.notes if note.wanted and note.wanted.kind is WantedKind.DOMAIN]
    refused = [violation.subject for violation in result.violations if violation.rule == "domain_not_allowed"]
    found = [notes.hint_domain(domain, f"policy.allow_domain({domain!r})") for domain in [*wanted, *refused][:1]]
    missing = [path for pattern in _MISSING_FILE for path in _names(pattern, said) if not path.startswith("/")]
    if missing and not result.here:
        found.append(notes.hint_missing(missing[0], "Sandbox(here='.')"))
    return found


def _own_module(name: str, result: ExecResult, stumble: Stumble) -> Note | None:
    """Return the hint for a module that lies beside the notebook; None for any other."""
    if result.here or stumble.beside is None:
        return None
    for path in (f"{folder}{name}{end}" for folder in ("", "src/", "lib/") for end in (".py", "/__init__.py", "")):
        if stumble.beside(path):
            return _beside(path, result, stumble)
    return None


def _beside(path: str, result: ExecResult, stumble: Stumble, *, absolute: bool = False) -> Note:
    """Return the hint for a file that lies beside the notebook; a running session has the folder that it began with."""
    how = "--keep --here" if result.language == Language.PYTHON else f"{result.language} first"
    running = f"{stumble.line}restart {how}" if stumble.running else ""
    write = stumble.write("--here", "", library="Sandbox(here='.')")
    return notes.hint_file(write, path, "the notebook" if stumble.line else "you", running, absolute)
