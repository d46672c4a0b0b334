"""Candidates of a machine, as an agent's tools see them: real sandboxes, no framework."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox_kernel.integrations.machine import Candidates, SandboxMachine


@pytest.fixture
def machine() -> Iterator[SandboxMachine]:
    made = SandboxMachine()
    yield made
    made.close()


def test_each_command_begins_with_the_present_files_and_one_is_kept(machine: SandboxMachine) -> None:
    found = Candidates(machine)
    machine.run("echo 1 > a")
    told = found.explore(["echo 2 >> a; cat a", "echo 3 >> a; cat a; exit 5"])
    assert told.splitlines() == ["candidate 0: exit code 0", "1", "2", "candidate 1: exit code 5", "1", "3"]
    assert machine.run("cat a").stdout == "1\n"
    found.explore(["echo 2 >> a", "echo 3 >> a"])
    assert found.keep(1) == "candidate 1 was kept"
    assert machine.run("cat a").stdout == "1\n3\n"


def test_what_cannot_be_done_is_told(machine: SandboxMachine) -> None:
    found = Candidates(machine)
    assert found.keep(0) == "error: there are no candidates; explore makes some"
    assert found.explore([]).startswith("error: explore takes a list of 1 to")
    told = found.explore(["true", "sleep 60"], timeout=2)
    assert told.splitlines()[1] == "candidate 1: time limit of 2 s exceeded; cannot be kept"
    assert "candidate 1 left no state" in found.keep(1)
    assert found.keep(7).startswith("error: there are 2 candidates")
    assert found.keep(0) == "candidate 0 was kept"
