"""Compilers run behind the walls too, against the programs of ``programs/compilers.py``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.programs.compilers import PROGRAMS
from tests.attacks.trials import Trial, trials


@pytest.mark.parametrize("trial", trials(PROGRAMS))
@pytest.mark.one_case
def test_a_program_that_attacks_while_it_is_compiled_is_behind_the_same_walls(
    trial: Trial, tmp_path: Path, nothing_left: None, record_property: Callable[[str, object], None]
) -> None:
    record_property("ended", trial.survive(tmp_path))
