"""The limits of processes, threads, descriptors and the like, against the programs of ``programs/counts.py``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.programs.counts import PROGRAMS
from tests.attacks.trials import Trial, trials


@pytest.mark.parametrize("trial", trials(PROGRAMS))
@pytest.mark.one_case
def test_a_program_that_takes_too_many_of_what_is_counted_is_stopped(
    trial: Trial, tmp_path: Path, nothing_left: None, record_property: Callable[[str, object], None]
) -> None:
    record_property("ended", trial.survive(tmp_path))
