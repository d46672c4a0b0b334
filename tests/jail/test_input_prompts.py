"""A process that sleeps in an empty pipe is told from one that works, sleeps otherwise, or waits for something else."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sandbox_kernel.jail import input_prompts
from sandbox_kernel.jail.input_prompts import CannotTell, waits_for_input

WAITING = {
    "read": "os.read(0, 1)",
    "a line": "sys.stdin.readline()",
    "another descriptor": "os.read(os.dup(0), 1)",
    "a thread": "import threading; threading.Thread(target=os.read, args=(0, 1)).start(); time.sleep(60)",
    "a child": "os.fork() or os.read(0, 1); os.wait()",
    "poll": "import select; p = select.poll(); p.register(0, select.POLLIN); p.poll()",
    "select": "import select; select.select([0], [], [])",
    "epoll": "import select; e = select.epoll(); e.register(0, select.EPOLLIN); e.poll()",
}
BUSY = {
    "sleeping": "time.sleep(60)",
    "another pipe": "os.read(os.pipe()[0], 1)",
    "only hung up": "import select; p = select.poll(); p.register(0, select.POLLHUP); p.poll()",
    "working": "\nwhile True: pass",
}


class Program:
    """A program below this process, as one is below the init of a jail; ``ready`` once it says so."""

    def __init__(self, code: str) -> None:
        read, self.pipe = os.pipe()
        # One process in between: the init of a jail is not looked at itself.
        script = f"import os, sys, time\nsys.stderr.write('x')\nsys.stderr.flush()\n{code}"
        starter = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {script!r}])"
        self.process = subprocess.Popen(
            [sys.executable, "-c", starter], stdin=read, stderr=subprocess.PIPE, start_new_session=True
        )
        os.close(read)
        assert self.process.stderr is not None
        assert self.process.stderr.read(1) == b"x"

    def close(self) -> None:
        os.killpg(self.process.pid, 9)
        self.process.communicate()
        os.close(self.pipe)


@pytest.fixture
def start() -> Iterator[type[Program]]:
    made: list[Program] = []

    class Kept(Program):
        def __init__(self, code: str) -> None:
            super().__init__(code)
            made.append(self)

    yield Kept
    for program in made:
        program.close()


@pytest.mark.parametrize("code", WAITING.values(), ids=WAITING)
def test_a_program_that_sleeps_until_it_gets_input_is_seen(start: type[Program], code: str) -> None:
    program = start(code)
    while not waits_for_input(program.process.pid, program.pipe):  # it has yet to come that far
        assert program.process.poll() is None


@pytest.mark.parametrize("code", BUSY.values(), ids=BUSY)
def test_a_program_that_does_something_else_is_not(start: type[Program], code: str) -> None:
    program = start(code)
    assert not any(waits_for_input(program.process.pid, program.pipe) for _ in range(50))


def test_a_program_that_has_input_left_does_not_wait(start: type[Program]) -> None:
    program = start("os.read(0, 1); time.sleep(60)")
    os.write(program.pipe, b"two")
    assert not any(waits_for_input(program.process.pid, program.pipe) for _ in range(50))


def test_where_the_kernel_does_not_say_nobody_guesses(start: type[Program], monkeypatch: pytest.MonkeyPatch) -> None:
    program = start("os.read(0, 1)")

    def refused(*_: object) -> Iterator[int]:
        raise PermissionError

    monkeypatch.setattr(input_prompts, "_read_by", refused)
    with pytest.raises(CannotTell):
        waits_for_input(program.process.pid, program.pipe)


def test_a_program_that_is_gone_waits_for_nothing() -> None:
    read, write = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert not waits_for_input(process.pid, write)
    os.close(read)
    os.close(write)
