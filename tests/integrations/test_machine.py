"""``SandboxMachine``: what programs do to the files on their way in and out."""

import pytest

from sandbox_kernel.integrations.machine import MachineSize, SandboxMachine


@pytest.mark.parametrize("trap", ["echo > .machine", "ln -s /etc .machine", "mkdir -m 0 .machine"])
def test_what_a_program_makes_of_a_transfer_is_an_error_that_frameworks_expect(monkeypatch, trap: str) -> None:
    machine = SandboxMachine(size=MachineSize(disk_mb=64))
    read, grow = machine._session.read_file, "truncate -s 128M .machine/1"  # by what an earlier command left running
    with monkeypatch.context() as beside, pytest.raises(PermissionError):
        beside.setattr(machine._session, "read_file", lambda name, **most: machine.run(grow) and read(name, **most))
        machine.read("/etc/passwd")
    with pytest.raises(PermissionError):
        assert machine.run(f"rm -r .machine; {trap}").ok
        machine.write("b", b"")
    machine.close()
