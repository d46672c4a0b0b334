"""``%pip`` in a session of Python in WebAssembly: finds wheels of pure Python, and what they need, and unpacks them.

All that an index or a wheel says is read inside the guest, and pages and files come through the host's fetch rules.
Packages go into a folder of the work folder, so a rollback removes them, and they can open their own files by path.
"""

import importlib
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .fetching import Fetch, Send
from .index import Candidate, WheelIndex
from .resolve import VersionChoice, need_of, requirement, resolve
from .unpack import PackageError, WheelFile, remove, unpack

FOLDER = "/box/packages"
_FLAGS = {
    "-q": "", "--quiet": "", "--no-cache-dir": "", "--disable-pip-version-check": "", "-U": "upgrade",
    "--upgrade": "upgrade", "--pre": "pre", "--no-deps": "alone", "--no-index": "no_index", "-y": "", "--yes": "",
}  # fmt: skip
_VALUES = {
    "-i": "index", "--index-url": "index", "--extra-index-url": "index", "-f": "links", "--find-links": "links",
    "-r": "files", "--requirement": "files", "--trusted-host": "", # the host decides whom it trusts
}  # fmt: skip


@dataclass
class Asked:
    """The words of a line of ``%pip``."""

    names: list[str] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)
    values: dict[str, list[str]] = field(default_factory=dict)


def pip(line: str, send: Send) -> None:
    """Do what a line ``%pip …`` asks for; prints what was done. ``send`` sends a message to the worker."""
    try:
        _do(shlex.split(line, comments=True), send)
    except (OSError, ValueError, RecursionError) as error:
        # A page or a wheel that is not as it should be, in a way that nobody thought of.
        raise PackageError(f"%pip {line[:200]} failed: {str(error)[:500] or type(error).__name__}") from None


def _do(words: list[str], send: Send) -> None:
    command, rest = (words[0], words[1:]) if words else ("", [])
    if command == "install":
        _install(_asked(rest), Fetch(send))
    elif command in ("list", "freeze"):
        for name, found in sorted(_installed().items()):
            print(f"{name}=={found.version}")
    elif command == "uninstall":
        for name in _asked(rest).names:
            _uninstall(name)
    else:
        raise PackageError(f"%pip {command or '…'} is not there; this sandbox has %pip install, uninstall and list")


def _asked(words: Sequence[str]) -> Asked:
    asked, rest = Asked(), list(words)
    while rest:
        word, given, value = rest.pop(0).partition("=")
        if not word.startswith("-"):
            asked.names.append(word + given + value)
        elif word in _FLAGS and not given:
            asked.flags.add(_FLAGS[word])
        elif word in _VALUES and (given or rest):
            asked.values.setdefault(_VALUES[word], []).append(value if given else rest.pop(0))
        else:
            known = " ".join(sorted({*_FLAGS, *_VALUES}))
            raise PackageError(f"{word} cannot be used here; %pip install in WebAssembly knows: {known}")
    for path in asked.values.get("files", []):
        with open(path, encoding="utf-8") as file:
            for text in file:
                name = re.sub(r"(^|\s)#.*", "", text).strip()
                if name.startswith("-"):
                    raise PackageError(f"{path} has the line {name[:100]!r}; only names of packages are read")
                asked.names += [name] if name else []
    return asked


def _installed() -> dict[str, metadata.Distribution]:
    """Return what can be imported already, by name."""
    paths = [path for path in sys.path if path != "/box"]
    found: dict[str, metadata.Distribution] = {}
    for one in metadata.distributions(path=[FOLDER, *(path for path in paths if path != FOLDER)]):
        if one.metadata["Name"]:
            found.setdefault(canonicalize_name(one.metadata["Name"]), one)
    return found


def _install(asked: Asked, fetch: Fetch) -> None:
    if not asked.names:
        raise PackageError("%pip install needs the name of a package, for example %pip install six")
    before = _installed()
    chosen = _chosen(asked, fetch, before)
    wheels = [(one.wheel, one.wheel.wheel()) for one in chosen if one.wheel is not None]
    for one, wheel in wheels:
        old = before.get(one.name)
        if old is not None and _is_ours(old):
            remove(old, FOLDER)
        unpack(wheel, FOLDER)
    if FOLDER not in sys.path:
        sys.path.append(FOLDER)
    importlib.invalidate_caches()
    for kept in chosen:
        if kept.wheel is None:
            print(f"Requirement already satisfied: {kept.name} {kept.version}")
    if wheels:
        print("Successfully installed " + " ".join(f"{one.name}-{one.version}" for one, _ in wheels))
    for one, wheel in wheels:
        _tell(one, wheel, before)


def _chosen(asked: Asked, fetch: Fetch, there: dict[str, metadata.Distribution]) -> list[VersionChoice]:
    """Choose what to install, and what stays."""
    named = [] if "no_index" in asked.flags else asked.values.get("index")
    index = WheelIndex(
        fetch,
        fetch.usual_indexes if named is None else lambda: named,
        asked.values.get("links", []),
        "pre" in asked.flags,
    )
    roots = [need_of(_root(name, index)) for name in asked.names]
    # -U does not replace a package that is part of this Python.
    stays = {name: one for name, one in there.items() if "upgrade" not in asked.flags or not _is_ours(one)}
    return resolve(roots, index, stays, alone="alone" in asked.flags)


def _root(name: str, index: WheelIndex) -> Requirement:
    if name.endswith(".whl") and "://" not in name:
        return Requirement(index.add_file(os.path.expanduser(name)))
    if os.path.isdir(name) or ("://" in name and "@" not in name) or name.startswith((".", "/")):
        raise PackageError(
            f"{name[:200]} is no package or wheel; give a name, the path of a wheel, or a folder of wheels with "
            "--find-links FOLDER"
        )
    return requirement(name, "you")


def _tell(one: Candidate, wheel: WheelFile, before: dict[str, metadata.Distribution]) -> None:
    own = [name for name in wheel.modules if name in sys.stdlib_module_names]
    if own:
        print(f"note: {one.name} has modules that Python has too ({', '.join(own[:5])}); Python's own are imported")
    if one.name in before and any(name in sys.modules for name in wheel.modules):
        print(f"note: {one.name} was imported before; restart the session to use version {one.version}")


def _is_ours(found: metadata.Distribution) -> bool:
    return str(found.locate_file("")).rstrip("/") == FOLDER


def _uninstall(name: str) -> None:
    found = _installed().get(canonicalize_name(name))
    if found is None or not _is_ours(found):
        where = "is not installed" if found is None else "is part of this Python"
        raise PackageError(f"{name[:100]} {where}; %pip list shows what is installed")
    told = f"{found.name}-{found.version}"
    remove(found, FOLDER)
    importlib.invalidate_caches()
    print(f"Successfully uninstalled {told}")
