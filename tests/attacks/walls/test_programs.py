"""Each wall and each limit, against the table of programs that try it (``tests/attacks/programs``)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.programs import TABLES
from tests.attacks.trials import Trial, trials


@pytest.mark.parametrize("trial", [trial for programs in TABLES for trial in trials(programs)])
def test_a_hostile_program_ends_as_it_must_and_harms_nothing(
    trial: Trial, tmp_path: Path, nothing_left: None, record_property: Callable[[str, object], None]
) -> None:
    record_property("ended", trial.survive(tmp_path))
