"""The pipes between a program and the host, against the programs of ``programs/output.py``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.attacks.programs.output import PROGRAMS
from tests.attacks.trials import Trial, trials


@pytest.mark.parametrize("trial", trials(PROGRAMS))
@pytest.mark.one_case
def test_a_program_that_abuses_its_pipes_harms_neither_host_nor_result(
    trial: Trial, tmp_path: Path, nothing_left: None, record_property: Callable[[str, object], None]
) -> None:
    record_property("ended", trial.survive(tmp_path))
