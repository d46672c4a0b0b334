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

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from .fetching import Fetch, Send
from .index import Candidate, WheelIndex
from .unpack import PackageError, WheelFile, remove, unpack

FOLDER = "/box/packages"
_DEFAULT_INDEX = "https://pypi.org/simple"
_MOST_PACKAGES, _MOST_ROUNDS, _MOST_REQUIREMENTS = 100, 50, 500
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
    resolver = _Resolver(asked, fetch)
    chosen = resolver.resolve()
    wheels = [(one, one.wheel()) for one in chosen]
    before = _installed()
    for one, wheel in wheels:
        old = before.get(one.name)
        if old is not None and _is_ours(old):
            remove(old, FOLDER)
        unpack(wheel, FOLDER)
    if FOLDER not in sys.path:
        sys.path.append(FOLDER)
    importlib.invalidate_caches()
    for found in resolver.kept:
        print(f"Requirement already satisfied: {found}")
    if wheels:
        print("Successfully installed " + " ".join(f"{one.name}-{one.version}" for one, _ in wheels))
    for one, wheel in wheels:
        _tell(one, wheel, before)


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


@dataclass
class _Wanted:
    """A package that is needed: what was asked of its version, by whom, and with which extras."""

    requirements: list[tuple[Requirement, str]] = field(default_factory=list)
    extras: set[str] = field(default_factory=set)


class _Resolver:
    """Chooses the newest wheels that fit together: for all that is known, then for what these need, until all is."""

    def __init__(self, asked: Asked, fetch: Fetch) -> None:
        indexes = asked.values.get("index") or [os.environ.get("PIP_INDEX_URL") or _DEFAULT_INDEX]
        self._index = WheelIndex(
            fetch, [] if "no_index" in asked.flags else indexes, asked.values.get("links", []), "pre" in asked.flags
        )
        self._asked = asked
        self._installed = _installed()
        self._needed: dict[tuple[Candidate, frozenset[str]], list[Requirement]] = {}
        #: Packages that are there already and fit.
        self.kept: list[str] = []

    def resolve(self) -> list[Candidate]:
        """Return the wheels to install; raises ``PackageError`` when nothing fits."""
        roots = [(self._root(name), "you") for name in self._asked.names]
        chosen: dict[str, Candidate | None] = {}
        for _ in range(_MOST_ROUNDS):
            wanted = self._wanted(roots, chosen)
            new = {name: self._choose(name, wants) for name, wants in wanted.items()}
            if new == chosen:
                return [one for one in chosen.values() if one is not None]
            chosen = new
        raise PackageError(
            "these packages do not fit together: no choice of versions was found; ask for exact versions"
        )

    def _root(self, name: str) -> Requirement:
        if name.endswith(".whl") and "://" not in name:
            return Requirement(self._index.add_file(os.path.expanduser(name)))
        if os.path.isdir(name) or ("://" in name and "@" not in name) or name.startswith((".", "/")):
            raise PackageError(
                f"{name[:200]} is no package or wheel; give a name, the path of a wheel, or a folder of wheels with "
                "--find-links FOLDER"
            )
        return _requirement(name, "you")

    def _wanted(self, roots: list[tuple[Requirement, str]], chosen: dict[str, Candidate | None]) -> dict[str, _Wanted]:
        wanted: dict[str, _Wanted] = {}
        waiting = list(roots)
        while waiting:
            requirement, by = waiting.pop(0)
            name = canonicalize_name(requirement.name)
            wants = wanted.setdefault(name, _Wanted())
            if len(wanted) > _MOST_PACKAGES:
                raise PackageError(f"more than {_MOST_PACKAGES} packages are needed; install them in parts")
            if any(known == requirement for known, _ in wants.requirements):
                continue
            wants.requirements.append((requirement, by))
            wants.extras |= requirement.extras
            one = chosen.get(name)
            if one is not None and "alone" not in self._asked.flags:
                waiting += [(needs, one.name) for needs in self._needs(one, frozenset(wants.extras))]
        return wanted

    def _needs(self, one: Candidate, extras: frozenset[str]) -> list[Requirement]:
        known = self._needed.get((one, extras))
        if known is None:
            known = self._needed[one, extras] = self._read_needs(one, extras)
        return known

    @staticmethod
    def _read_needs(one: Candidate, extras: frozenset[str]) -> list[Requirement]:
        found = []
        texts = one.requires()
        if len(texts) > _MOST_REQUIREMENTS:
            raise PackageError(
                f"{one.name} {one.version} lists {len(texts)} requirements; at most {_MOST_REQUIREMENTS}"
            )
        for text in texts:
            needs = _requirement(text, one.name)
            if needs.marker is None or any(needs.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                found.append(needs)
        return found

    def _stays(self, there: metadata.Distribution, specifiers: list[SpecifierSet]) -> bool:
        """Whether a package that is there already fits; -U does not replace one that is part of this Python."""
        replaced = "upgrade" in self._asked.flags and _is_ours(there)
        if replaced or not all(each.contains(there.version, prereleases=True) for each in specifiers):
            return False
        text = f"{there.name} {there.version}"
        self.kept += [text] if text not in self.kept else []
        return True

    def _choose(self, name: str, wants: _Wanted) -> Candidate | None:
        """Return the wheel to install; None when what is there already fits."""
        specifiers = [requirement.specifier for requirement, _ in wants.requirements]
        there = self._installed.get(name)
        if there is not None and name not in self._index and self._stays(there, specifiers):
            return None
        fitting = [
            one
            for one in self._index.candidates(name)
            if all(each.contains(one.version, prereleases=True) for each in specifiers)
        ]
        if fitting:
            return max(fitting, key=lambda one: one.version)
        asked = ", ".join(f"{requirement} (by {by})" for requirement, by in wants.requirements[:5])
        raise self._index.why_none(name, specifiers, asked)


def _requirement(text: str, by: str) -> Requirement:
    try:
        found = Requirement(text)
    except InvalidRequirement as error:
        raise PackageError(f"{text[:200]!r}, asked for by {by}, is no requirement: {str(error)[:200]}") from None
    if found.url:
        raise PackageError(
            f"{text[:200]!r}, asked for by {by}, names an address; only packages of an index are installed"
        )
    return found
