"""Every kind of walls, with and without control groups, for tests that must hold behind each of them."""

import sys
from dataclasses import dataclass, replace

import pytest

from sandbox_kernel.errors import EnforcerUnavailable
from sandbox_kernel.jail.accounting.cgroups import Hierarchies, find_hierarchies
from sandbox_kernel.jail.enforcer import get_enforcer


@dataclass(frozen=True)
class Tier:
    """An enforcer, and what counts: ``groups``, groups that do not count processes (``no pids``), or ``no groups``."""

    enforcer: str
    counted_by: str

    def __str__(self) -> str:
        return f"{self.enforcer}, {self.counted_by}"

    def enter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take away what the tier lacks for the rest of the test, or skip where this host lacks what it has."""
        found = find_hierarchies()
        if self.counted_by == "groups" and (found is None or found.pids is None):
            pytest.skip("no control group that limits memory and processes may be made here")
        if self.counted_by == "no pids":
            if found is None:
                pytest.skip("no control group may be made here")
            found = replace(found, pids=None)
        if self.counted_by == "no groups":
            found = None
        _replace(monkeypatch, found)
        try:
            get_enforcer(self.enforcer)
        except EnforcerUnavailable as error:
            pytest.skip(str(error))


def _replace(monkeypatch: pytest.MonkeyPatch, found: Hierarchies | None) -> None:
    """Let every module that asks for control groups find these."""
    for name, module in list(sys.modules.items()):
        if name.startswith("sandbox_kernel.") and hasattr(module, "find_hierarchies"):
            monkeypatch.setattr(module, "find_hierarchies", lambda: found)


TIERS = [
    pytest.param(tier, id=str(tier))
    for enforcer in ("bubblewrap", "landlock")
    for counted_by in ("groups", "no pids", "no groups")
    for tier in [Tier(enforcer, counted_by)]
]
