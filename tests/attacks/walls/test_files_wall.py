"""The wall around files, against the programs of ``programs/files.py``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.programs.files import PROGRAMS
from tests.attacks.trials import Trial, trials


@pytest.mark.parametrize("trial", trials(PROGRAMS))
@pytest.mark.one_case
def test_a_program_that_looks_for_files_of_the_host_finds_and_changes_none(
    trial: Trial, tmp_path: Path, nothing_left: None, record_property: Callable[[str, object], None]
) -> None:
    record_property("ended", trial.survive(tmp_path))
