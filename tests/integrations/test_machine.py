"""``SandboxMachine``: what programs do to the files on their way in and out."""

from collections.abc import Iterator

import pytest

from sandbox_kernel.integrations.machine import MachineSize, SandboxMachine


@pytest.fixture
def machine() -> Iterator[SandboxMachine]:
    made = SandboxMachine(size=MachineSize(disk_mb=64))
    yield made
    made.close()


@pytest.mark.parametrize(
    "trap", ["echo > .machine", "ln -s /etc .machine", "mkdir -p .machine/1 .machine/2", "mkdir -m 0 .machine"]
)
def test_what_stands_in_the_way_of_a_file_is_an_error_that_frameworks_expect(machine, trap: str) -> None:
    assert machine.run(f"echo hello > a; {trap}").ok
    for transfer in (lambda: machine.read("a"), lambda: machine.write("b", b"")):
        with pytest.raises(PermissionError):
            transfer()


def test_a_file_that_is_or_becomes_longer_than_the_disk_is_not_read(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.run("truncate -s 1G long; echo small > a")
    with pytest.raises(OSError, match="too large"):
        machine.read("long")
    seen, read = [], machine._session.read_file
    monkeypatch.setattr(machine._session, "read_file", lambda name, **most: seen.append(most) or read(name, **most))
    assert machine.read("a") == b"small\n"
    assert seen == [{"max_bytes": 64 << 20}]
