"""Chooses wheels that fit together: the newest ones, and older ones where those do not fit. Runs inside the guest.

The search is that of ``resolvelib``, which pip uses too. What it may look at is bounded: an index is hostile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from resolvelib import AbstractProvider, BaseReporter, ResolutionImpossible, ResolutionTooDeep, Resolver

from .index import PYTHON, Candidate, WheelIndex
from .unpack import PackageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from resolvelib.structs import RequirementInformation

#: What one installation may need, look at and try.
_MOST_PACKAGES, _MOST_READ, _MOST_ROUNDS, _MOST_REQUIREMENTS = 100, 200, 500, 500
#: The name of Python itself among the packages; no package can have it.
_ITSELF = "Python itself"


@dataclass(frozen=True)
class Need:
    """What is asked of a package: a range of versions, and extras."""

    name: str
    specifier: SpecifierSet
    extras: frozenset[str] = frozenset()
    text: str = ""


@dataclass(frozen=True)
class VersionChoice:
    """A version of a package: a wheel, or what is there already. With extras it is what these need beside it."""

    name: str
    version: Version
    wheel: Candidate | None
    extras: frozenset[str] = frozenset()


if TYPE_CHECKING:
    _Cause = RequirementInformation[Need, VersionChoice]


class _Packages(AbstractProvider[Need, VersionChoice, str]):
    """What the search asks about packages; ``there`` has those that are installed and may stay."""

    def __init__(self, index: WheelIndex, there: Mapping[str, metadata.Distribution], *, alone: bool) -> None:
        self._index, self._there, self._alone = index, there, alone
        self._names: set[str] = set()
        self._known: dict[VersionChoice, list[Need]] = {}
        self._order: dict[str, int] = {}

    def identify(self, requirement_or_candidate: Need | VersionChoice) -> str:
        """See ``AbstractProvider``: a package, and a package with extras, are two things to find."""
        given = requirement_or_candidate
        return f"{given.name}[{','.join(sorted(given.extras))}]" if given.extras else given.name

    def get_preference(
        self,
        identifier: str,
        resolutions: Mapping[str, VersionChoice],
        candidates: Mapping[str, Iterator[VersionChoice]],
        information: Mapping[str, Iterator[_Cause]],
        backtrack_causes: Sequence[_Cause],
    ) -> tuple[bool, bool, bool, int]:
        """See ``AbstractProvider``: Python, then what failed, then exact versions, then in the order of the needs."""
        failed = any(identifier in (cause.requirement.name, cause.parent and cause.parent.name)
                     for cause in backtrack_causes)  # fmt: skip
        parts = [part for cause in information[identifier] for part in cause.requirement.specifier]
        exact = any(part.operator in ("==", "===") for part in parts)
        return identifier != _ITSELF, not failed, not exact, self._order.setdefault(identifier, len(self._order))

    def find_matches(
        self,
        identifier: str,
        requirements: Mapping[str, Iterator[Need]],
        incompatibilities: Mapping[str, Iterator[VersionChoice]],
    ) -> list[VersionChoice]:
        """See ``AbstractProvider``: what is there already if it fits, then wheels, the newest first."""
        needs = list(requirements[identifier])
        name, extras = needs[0].name, needs[0].extras
        if name == _ITSELF:
            return (
                [VersionChoice(name, Version(PYTHON), None)]
                if all(_fits(need, Version(PYTHON)) for need in needs)
                else []
            )
        self._names.add(name)
        if len(self._names) > _MOST_PACKAGES:
            raise PackageError(f"more than {_MOST_PACKAGES} packages are needed; install them in parts")
        refused = {choice.version for choice in incompatibilities[identifier]}
        wheels = {one.version: one for one in self._index.candidates(name)}
        newest = [VersionChoice(name, version, wheels[version], extras) for version in sorted(wheels, reverse=True)]
        return [
            choice
            for choice in [*self._kept(name, extras), *newest]
            if choice.version not in refused and all(_fits(need, choice.version) for need in needs)
        ]

    def _kept(self, name: str, extras: frozenset[str]) -> list[VersionChoice]:
        """Return the version that is there and may stay; one that was asked for by its file is always new."""
        there = self._there.get(name)
        try:
            return (
                []
                if there is None or name in self._index
                else [VersionChoice(name, Version(there.version), None, extras)]
            )
        except InvalidVersion:
            return []

    def is_satisfied_by(self, requirement: Need, candidate: VersionChoice) -> bool:
        """See ``AbstractProvider``."""
        return _fits(requirement, candidate.version)

    def get_dependencies(self, candidate: VersionChoice) -> list[Need]:
        """See ``AbstractProvider``; what is there already has what it needs."""
        found = self._known.get(candidate)
        if found is None:
            if len(self._known) >= _MOST_READ:
                raise too_many()
            found = self._known[candidate] = list(self._read(candidate))
        return found

    def _read(self, choice: VersionChoice) -> Iterator[Need]:
        if choice.extras:
            exactly = SpecifierSet(f"=={choice.version}")
            yield Need(choice.name, exactly, text=f"{choice.name}=={choice.version}")
        if choice.wheel is None or self._alone:
            return
        says, by = choice.wheel.metadata(), f"{choice.name} {choice.version}"
        if len(says.requires) > _MOST_REQUIREMENTS:
            raise PackageError(f"{by} lists {len(says.requires)} requirements; at most {_MOST_REQUIREMENTS}")
        if says.python and not choice.extras:
            try:
                yield Need(_ITSELF, SpecifierSet(says.python), text=f"Python {says.python}")
            except InvalidSpecifier:
                pass  # pip takes such a package too
        for text in says.requires:
            asked = requirement(text, by)
            under = choice.extras or [""]
            if asked.marker is None:
                fits = not choice.extras
            else:
                fits = any(asked.marker.evaluate({"extra": extra}) for extra in under)
            if fits:
                yield need_of(asked)


def _fits(need: Need, version: Version) -> bool:
    return need.specifier.contains(version, prereleases=True)


def need_of(asked: Requirement) -> Need:
    """Return what a requirement asks for."""
    return Need(canonicalize_name(asked.name), asked.specifier, frozenset(asked.extras), str(asked))


def requirement(text: str, by: str) -> Requirement:
    """Read a requirement; ``by`` is who has it."""
    try:
        found = Requirement(text)
    except InvalidRequirement as error:
        raise PackageError(f"{text[:200]!r}, asked for by {by}, is no requirement: {str(error)[:200]}") from None
    if found.url:
        raise PackageError(
            f"{text[:200]!r}, asked for by {by}, names an address; only packages of an index are installed"
        )
    return found


def too_many() -> PackageError:
    """Return the error of a search that was given up."""
    return PackageError(
        f"no versions that fit together were found among the first {_MOST_READ} that were tried; ask for exact versions"
    )


def resolve(
    roots: Iterable[Need], index: WheelIndex, there: Mapping[str, metadata.Distribution], *, alone: bool
) -> list[VersionChoice]:
    """Return one version of each package that is needed; raises ``PackageError`` when nothing fits.

    Args:
        roots: What the user asked for.
        index: Where the wheels are.
        there: The packages that are installed already and may stay, by name.
        alone: Whether to leave out what the packages need.

    """
    packages = _Packages(index, there, alone=alone)
    try:
        found = Resolver(packages, BaseReporter[Need, VersionChoice, str]()).resolve(list(roots), _MOST_ROUNDS).mapping
    except ResolutionImpossible as error:
        raise _why(index, error.causes) from None
    except ResolutionTooDeep:
        raise too_many() from None
    return [choice for choice in found.values() if not choice.extras and choice.name != _ITSELF]


def _why(index: WheelIndex, causes: Iterable[_Cause]) -> PackageError:
    """Return the error that says which needs do not fit together."""
    asked: dict[str, list[tuple[Need, str]]] = {}
    for cause in causes:
        by = "you" if cause.parent is None else f"{cause.parent.name} {cause.parent.version}"
        pairs = asked.setdefault(cause.requirement.name, [])
        if (cause.requirement, by) not in pairs:
            pairs.append((cause.requirement, by))
    for name, pairs in asked.items():
        if name != _ITSELF:
            text = ", ".join(f"{need.text} (by {by})" for need, by in pairs[:5])
            return index.why_none(name, [need.specifier for need, _ in pairs], text)
    text = ", ".join(f"{by} needs {need.text}" for need, by in asked.get(_ITSELF, [])[:5])
    return PackageError(f"{text}; this is Python {PYTHON}")
