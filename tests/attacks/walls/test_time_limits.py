"""The limits of time and of processor time, against the programs of ``programs/time.py``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.programs.time import PROGRAMS
from tests.attacks.trials import Trial, trials


@pytest.mark.parametrize("trial", trials(PROGRAMS))
@pytest.mark.one_case
def test_a_program_that_does_not_end_is_ended(
    trial: Trial, tmp_path: Path, nothing_left: None, record_property: Callable[[str, object], None]
) -> None:
    record_property("ended", trial.survive(tmp_path))
