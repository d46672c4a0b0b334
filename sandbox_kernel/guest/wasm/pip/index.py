"""Which wheels of pure Python an index or a folder has. Runs inside the guest."""

import hashlib
import html.parser
import json
import os
import sys
import urllib.parse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from .fetching import Fetch, NotFound, file_name, short
from .unpack import PackageError, WheelFile, WheelMetadata, read_wheel

_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
_MOST_LINKS = 50_000
#: The version of this Python.
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}.{sys.version_info[2]}"
_NATIVE = "WebAssembly runs only pure Python: use the native backend (backend='process', %%sandbox --backend process)"


class NativePackage(PackageError):
    """Raised for a package that has wheels with native code only."""


@dataclass(frozen=True)
class Candidate:
    """A wheel of pure Python that can be installed."""

    name: str
    version: Version
    url: str
    fetch: Fetch = field(compare=False, repr=False)
    sha256: str = ""
    #: Whether the index has the metadata of the wheel as a file of its own.
    has_metadata: bool = False
    _read: dict[str, object] = field(default_factory=dict, compare=False, repr=False)

    def wheel(self) -> WheelFile:
        """Return the wheel itself, fetched once."""
        found = self._read.get("wheel")
        if not isinstance(found, WheelFile):
            data = self.fetch.content(self.url)
            if self.sha256 and hashlib.sha256(data).hexdigest() != self.sha256:
                raise PackageError(f"{short(self.url)} is not the file that the index lists: its SHA-256 differs")
            found = self._read["wheel"] = read_wheel(file_name(self.url), data, self.name, str(self.version))
        return found

    def metadata(self) -> WheelMetadata:
        """Return what the wheel says that it needs."""
        found = self._read.get("metadata")
        if not isinstance(found, WheelMetadata):
            text = None
            if self.has_metadata and "wheel" not in self._read:
                try:
                    text = self.fetch.get(f"{self.url}.metadata")[0]
                except PackageError:
                    text = None  # the wheel has it too
            found = self._read["metadata"] = self.wheel().metadata if text is None else WheelMetadata.read(text)
        return found


class WheelIndex:
    """The wheels of some indexes and folders; each page is read once."""

    def __init__(
        self, fetch: Fetch, indexes: Callable[[], Sequence[str]], folders: Sequence[str], prereleases: bool
    ) -> None:
        self._fetch, self._indexes, self._prereleases = fetch, indexes, prereleases
        self._known: dict[str, list[Candidate]] = {}
        #: Wheels and other files that cannot be used, by name of the package.
        self._others: dict[str, list[tuple[Version | None, str]]] = {}
        self._given: dict[str, list[Candidate]] = {}
        self._folders: dict[str, list[Candidate]] = {}
        for folder in folders:
            if "://" in folder or not os.path.isdir(folder):
                raise PackageError(f"--find-links takes a folder that this sandbox can read, got {folder[:200]!r}")
            for file in sorted(os.listdir(folder)):
                one = self._candidate(file, os.path.join(os.path.abspath(folder), file))
                if one is not None:
                    self._folders.setdefault(one.name, []).append(one)

    def __contains__(self, name: str) -> bool:
        """Whether a wheel of this package was given by its path."""
        return name in self._given

    def add_file(self, path: str) -> str:
        """Take a wheel by its path; returns the requirement that it fulfils."""
        one = self._candidate(os.path.basename(path), os.path.abspath(path))
        if one is None:
            raise NativePackage(f"{os.path.basename(path)[:200]} is no wheel of pure Python; {_NATIVE}")
        self._given[one.name] = [one]
        return f"{one.name}=={one.version}"

    def candidates(self, name: str) -> list[Candidate]:
        """Return the wheels that can be installed."""
        if name in self._given:
            return self._given[name]
        if name not in self._known:
            found = list(self._folders.get(name, ()))
            for index in self._indexes():
                found += self._page(name, f"{index.rstrip('/')}/{name}/")
            final = [one for one in found if self._prereleases or not one.version.is_prerelease]
            self._known[name] = final or found
        return self._known[name]

    def why_none(self, name: str, specifiers: Iterable[SpecifierSet], asked: str) -> PackageError:
        """Return the error that says why no wheel fits."""
        fits = list(specifiers)
        others = self._others.get(name, [])
        fitting = [(v, f) for v, f in others if v is None or all(each.contains(v, prereleases=True) for each in fits)]
        known = sorted({str(one.version) for one in self.candidates(name)}, key=Version)
        natives = [file for _, file in fitting if file.endswith(".whl")]
        if natives:
            return NativePackage(f"{asked}: {name} has native code ({natives[-1][:150]}); {_NATIVE}")
        if known:
            return PackageError(f"no version of {name} fits {asked}; there are {', '.join(known[-8:])}")
        if fitting:
            return PackageError(f"{asked}: {name} has no wheels, and WebAssembly cannot build {fitting[-1][1][:150]}")
        where = ", ".join(self._indexes()) or "the folders of --find-links"
        return PackageError(f"{asked}: {name} was not found; looked in {where}")

    def _candidate(self, file: str, url: str, sha256: str = "", has_metadata: bool = False) -> Candidate | None:
        if not file.endswith(".whl"):
            name = canonicalize_name(file.rpartition("-")[0])
            if file.endswith((".tar.gz", ".zip")):
                self._others.setdefault(name, []).append((None, file))
            return None
        try:
            name, version, _, tags = parse_wheel_filename(file)
        except InvalidWheelFilename:
            return None
        pure = [tag.interpreter for tag in tags if tag.abi == "none" and tag.platform == "any"]
        if not any(map(_runs_here, pure)):
            self._others.setdefault(name, []).append((version, file))
            return None
        return Candidate(name, version, url, self._fetch, sha256, has_metadata)

    def _page(self, name: str, url: str) -> list[Candidate]:
        try:
            data, kind = self._fetch.get(url, _ACCEPT)
        except NotFound:
            return []
        links = _json_links(data) if "json" in kind else _html_links(data)
        found = []
        for link in links[:_MOST_LINKS]:
            if link.yanked or not _python_fits(link.requires_python):
                continue
            target = urllib.parse.urljoin(url, link.url)
            base, _, fragment = target.partition("#")
            sha256 = link.sha256 or (fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else "")
            one = self._candidate(file_name(base), base, sha256, link.has_metadata)
            if one is not None and one.name == name:
                found.append(one)
        return found


@dataclass(frozen=True)
class _Link:
    url: str
    sha256: str = ""
    requires_python: str = ""
    yanked: bool = False
    has_metadata: bool = False


def _json_links(data: bytes) -> list[_Link]:
    try:
        files = json.loads(data)["files"]
        return [
            _Link(
                str(file["url"]),
                str(dict(file.get("hashes") or {}).get("sha256", "")),
                str(file.get("requires-python") or ""),
                bool(file.get("yanked")),
                bool(file.get("core-metadata") or file.get("dist-info-metadata")),
            )
            for file in files
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PackageError("the page of the index cannot be read; is it the simple index of a package index?") from None


class _Anchors(html.parser.HTMLParser):
    """Collects the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[_Link] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See ``HTMLParser``."""
        said = dict(attrs)
        if tag == "a" and said.get("href"):
            has = bool(said.get("data-core-metadata") or said.get("data-dist-info-metadata"))
            required = said.get("data-requires-python") or ""
            self.links.append(_Link(said["href"] or "", "", required, "data-yanked" in said, has))


def _html_links(data: bytes) -> list[_Link]:
    page = _Anchors()
    page.feed(data.decode("utf-8", "replace"))
    return page.links


def _runs_here(tag: str) -> bool:
    minor = tag.removeprefix("py3")
    return tag == "py3" or (tag != minor and minor.isdigit() and int(minor[:4]) <= sys.version_info[1])


def _python_fits(required: str) -> bool:
    try:
        return not required or SpecifierSet(required).contains(PYTHON, prereleases=True)
    except InvalidSpecifier:
        return True
