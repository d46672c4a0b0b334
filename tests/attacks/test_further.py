"""Programs in every language that go for what holds them, behind every kind of wall."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from further_programs import FURTHER
from harness import Attack, survive
from landlock import on_landlock

from sandbox_kernel import ExecRequest, Language, ProcessBackend, ProcessConfig, SandboxError
from sandbox_kernel.jail.rules.landlock import landlock_abi
from tests.conftest import need

#: Spares are of the languages whose interpreters templates hold; what a compiled program meets is the same jail.
FORKED = [attack for attack in FURTHER if attack.language in ("python", "command")]
keeps_signals_in = pytest.mark.skipif(
    landlock_abi() < 6, reason="needs a kernel whose Landlock keeps signals in (6.12)"
)


def require(attack: Attack, enforcer: str) -> None:
    """A language that is not there is a skip, with the backend's own reason."""
    request = ExecRequest(language=Language.parse(attack.language), code=attack.code, timeout=1)
    try:
        ProcessBackend(ProcessConfig(pool_size=0), enforcer)._recipe(request)
    except SandboxError as error:
        need(False, str(error))


@pytest.mark.parametrize("attack", FURTHER, ids=[attack.id for attack in FURTHER])
def test_a_program_that_goes_for_its_walls_ends_as_it_must(attack: Attack, tmp_path: Path, nothing_left: None) -> None:
    require(attack, "bubblewrap")
    survive(attack, tmp_path, "bubblewrap")


@pytest.mark.parametrize("attack", FORKED, ids=[attack.id for attack in FORKED])
def test_a_program_that_goes_for_its_walls_ends_as_it_must_in_a_spare(
    attack: Attack, tmp_path: Path, nothing_left: None
) -> None:
    survive(attack, tmp_path, "bubblewrap", forked=True)


@keeps_signals_in
@pytest.mark.parametrize("attack", FURTHER, ids=[attack.id for attack in FURTHER])
def test_a_program_that_goes_for_its_walls_ends_as_it_must_behind_landlock(
    attack: Attack, tmp_path: Path, nothing_left: None
) -> None:
    require(attack, "landlock")
    survive(on_landlock(attack), tmp_path, "landlock")
