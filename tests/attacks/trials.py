"""Runs each program behind every wall that holds one: started by bubblewrap, forked by a template, and Landlock."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from sandbox_kernel import ExecRequest, Language, ProcessBackend, ProcessConfig, SandboxError
from sandbox_kernel.jail.rules.landlock import landlock_abi
from tests.attacks.ends_behind_landlock import on_landlock
from tests.attacks.harness import Attack, survive
from tests.conftest import need

keeps_signals_in = pytest.mark.skipif(
    landlock_abi() < 6, reason="needs a kernel whose Landlock keeps signals in (6.12)"
)
#: Languages whose programs are run in a spare too. What other languages' programs meet there is the same jail.
IN_A_SPARE = ("python", "command", "c")


@dataclass(frozen=True)
class Trial:
    """One program and where it runs: ``bubblewrap``, ``pool`` or ``landlock``, the columns of the attack table."""

    attack: Attack
    where: str

    def survive(self, folder: Path) -> str:
        """Run the program, check what must come of it and every invariant; returns how it ended."""
        if self.where == "landlock":
            require_language(self.attack, "landlock")
            return survive(on_landlock(self.attack), folder, "landlock")
        require_language(self.attack, "bubblewrap")
        return survive(self.attack, folder, "bubblewrap", forked=self.where == "pool")


def trials(attacks: Iterable[Attack]) -> list[ParameterSet]:
    """Parameters for a test: every program of a table everywhere; `make test` tries the first in the first place alone.

    Programs of the attack list carry its mark.
    """
    wanted = [(attack, where) for attack in attacks for where in _places(attack)]
    return [_parameter(*trial, quick=trial == wanted[0]) for trial in wanted]


def _places(attack: Attack) -> tuple[str, ...]:
    return ("bubblewrap", "pool", "landlock") if attack.language in IN_A_SPARE else ("bubblewrap", "landlock")


def _parameter(attack: Attack, where: str, *, quick: bool) -> ParameterSet:
    marks = [pytest.mark.attack(attack.id, where)] if attack.listed else []
    if not quick:
        marks.append(pytest.mark.slow)
    if where == "landlock":
        marks.append(keeps_signals_in)
    return pytest.param(Trial(attack, where), id=f"{attack.id}-{where}", marks=marks)


def require_language(attack: Attack, enforcer: str) -> None:
    """Skip, with the backend's own reason, where the program's language is not installed."""
    request = ExecRequest(language=Language.parse(attack.language), code=attack.code, timeout=1)
    try:
        ProcessBackend(ProcessConfig(pool_size=0), enforcer)._recipe(request)
    except SandboxError as error:
        need(False, str(error))
