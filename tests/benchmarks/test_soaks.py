"""The short forms of the soaks: each fault once, every result accounted for, nothing left behind."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.soak_holdings import slope
from benchmarks.soak_waves import WAVES

ROOT = Path(__file__).resolve().parents[2]


def soak(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", *arguments]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)


@pytest.mark.slow
def test_executions_survive_every_fault_and_leave_nothing() -> None:
    done = soak("benchmarks.soak_executions", "--short")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [fault for fault in WAVES if f"fault: {fault} " not in done.stdout] == []
    assert re.search(r"slope [+-][\d.]+ MB per 1000 executions", done.stdout)


@pytest.mark.parametrize("language", ["python", "javascript", "command"])
@pytest.mark.slow
def test_sessions_survive_random_deaths_and_leave_nothing(language: str) -> None:
    done = soak("benchmarks.soak_sessions", "--short", "--language", language)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all as expected" in done.stdout


def test_the_slope_is_of_the_line_after_the_warming_up() -> None:
    assert slope([(0, 5000), (1000, 10), (2000, 20), (3000, 30)]) == 10.0
    assert slope([(1000, 5)]) == 0.0
