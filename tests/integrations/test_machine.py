"""``SandboxMachine``: what programs do to the files on their way in and out."""

import pytest

from sandbox_kernel.integrations.machine import MachineSize, SandboxMachine

GROW = "truncate -s 128M /box/.machine/1"


@pytest.mark.parametrize("trap", ["echo > .machine", "ln -s /etc .machine", "mkdir -m 0 .machine", GROW])
def test_what_a_program_makes_of_a_transfer_is_an_error_that_frameworks_expect(monkeypatch, trap: str) -> None:
    machine = SandboxMachine(size=MachineSize(disk_mb=64))
    read, run = machine._session.read_file, machine._session.run
    if trap == GROW:  # a program that an earlier command left running
        monkeypatch.setattr(machine._session, "read_file", lambda *name, **most: run(GROW) and read(*name, **most))
    with pytest.raises(PermissionError):
        assert machine.run(f"echo hello > a; {trap if trap != GROW else ''}").ok
        machine.read("a") if trap == GROW else machine.write("b", b"")
    machine.close()
