"""Cells that turn on the session itself: its descriptors, its checkpoints, the libraries of its worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox_kernel import Limits, ProcessConfig, Sandbox, SessionError
from sandbox_kernel.session.session import Session

FORGE = "import os, json, struct\nfor fd in range(3, 64):\n  try: os.write(fd, {data})\n  except OSError: pass"

#: By what they do: the cell, and whether it is taken back.
CELLS: dict[str, tuple[str, bool]] = {
    "returns twice from a fork": ("import os\npid = os.fork()", False),
    "raises in a forked child": ("import os, time\nif os.fork() == 0: raise ValueError\ntime.sleep(0.2)", False),
    "kills everybody": ("import os\nos.kill(-1, 9)", False),
    "terminates everybody": ("import os\nos.kill(-1, 15)", False),
    "stops everybody": ("import os\nos.kill(-1, 19)", False),
    "stops itself": ("import os\nos.kill(os.getpid(), 19)", True),
    "closes every descriptor": ("import os\nos.closerange(0, 1024)", True),
    "puts its output over every descriptor": ("import os\nfor fd in range(3, 64): os.dup2(1, fd)", True),
    "forges an end": (
        FORGE.format(data="(lambda m: struct.pack('>I', len(m)) + m)(json.dumps({'op': 'done', 'id': 9}).encode())"),
        True,
    ),
    "forges a frame of 2 GB": (FORGE.format(data="b'\\x7f\\xff\\xff\\xff'"), True),
    "forges half a frame": (FORGE.format(data="b'\\0\\0\\0\\x40{\"op\":'") + "\nimport time; time.sleep(0.3)", True),
    "breaks the built-in functions": ("import builtins\nbuiltins.len = builtins.isinstance = None", True),
    "breaks json": ("import json\njson.dumps = json.loads = None", True),
    "breaks sockets and structs": ("import socket, struct\nsocket.socket.recv = None; struct.pack = None", True),
    "breaks fork and exit": ("import os\nos.fork = lambda: 1/0\nos._exit = lambda c: None\nos.waitpid = None", False),
    "replaces the display hook": ("import sys\nsys.displayhook = lambda x: exit(5)\n42", False),
    "ends its process after the cell": (
        "get_ipython().events.register('post_execute', lambda: __import__('os')._exit(3))",
        True,
    ),
    "ignores every signal": (
        "import signal\nfor s in range(1, 32):\n  if s not in (9, 19): signal.signal(s, signal.SIG_IGN)",
        False,
    ),
    "blocks every signal": ("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))", False),
    "becomes another program": ("import os\nos.execv('/bin/sleep', ['sleep', '0.1'])", True),
    "removes its folder": ("import os, shutil\nos.mkdir('/box/x'); os.chdir('/box/x'); shutil.rmtree('/box/x')", False),
    "closes its folder": ("import os\nos.chmod('/box', 0)", False),
    "never hands the interpreter on": (
        (
            "import sys, threading\nsys.setswitchinterval(1000)\n"
            "threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start()\nwhile True: pass"
        ),
        True,
    ),
    "holds every process": (
        "import subprocess\nheld = []\ntry:\n  while True: held.append(subprocess.Popen(['sleep', '60']))\nexcept OSError: pass",
        False,
    ),
    "waits in its repr": ("class R:\n  def __repr__(self):\n    while True: pass\nR()", True),
}


@pytest.fixture
def session(nothing_left: None) -> Iterator[Session]:
    with Sandbox(config=ProcessConfig(pool_size=0)) as box:
        with box.session(memory_mb=256, limits=Limits(disk_mb=32, processes=16)) as opened:
            assert opened.run("kept = 41").ok
            yield opened


@pytest.mark.parametrize("name", CELLS)
def test_the_session_goes_on_with_its_state_after_a_cell_that(name: str, session: Session) -> None:
    code, taken_back = CELLS[name]
    result = session.run(code, timeout=3)
    assert result.rolled_back is taken_back, (result.status, result.notes, result.stderr[-500:])
    again = session.run("print('kept', kept)", timeout=20)
    assert again.stdout.endswith("kept 41\n"), (again.status, again.notes, again.stderr[-500:])


@pytest.mark.parametrize("cell", ["import os\nos.kill(-1, 15)", "import os\nos.kill(-1, 1)\nos.kill(-1, 12)"])
def test_what_was_sent_to_a_frozen_state_does_not_end_it_when_it_wakes(cell: str, session: Session) -> None:
    session.run(cell)
    session.undo()
    for _ in range(2):
        assert session.run("print('kept', kept)").stdout == "kept 41\n"


def test_going_back_to_a_state_that_the_cell_has_killed_loses_nothing(session: Session) -> None:
    assert session.run("import os\nos.kill(-1, 9)\nnewer = 42").ok
    with pytest.raises(SessionError, match=r"is gone.*nothing was taken back, and the session is as it was"):
        session.undo()
    assert session.run("print(kept, newer)").stdout == "41 42\n"
    assert session.undo().rolled_back
    assert session.run("print(kept, newer)").stdout == "41 42\n"


@pytest.mark.parametrize(
    "cell",
    [
        "import resource\nresource.setrlimit(resource.RLIMIT_DATA, (1, 1))",
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))",
        "import sys\nsys.modules.clear()",
    ],
)
def test_a_worker_that_cannot_freeze_any_more_is_not_waited_for(cell: str, session: Session) -> None:
    session.run(cell)
    try:
        session.run("1", timeout=20)
    except SessionError as error:
        assert "did not answer" not in str(error)
        assert session.run("print('kept', kept)").stdout == "kept 41\n"
    else:
        session.undo(2)
        assert session.run("print('kept', kept)").stdout == "kept 41\n"
