"""A worker that lies, floods, forges or falls silent: the host believes nothing, waits for nobody and goes on."""

from collections.abc import Callable

import pytest

from sandbox_kernel.errors import SessionError
from sandbox_kernel.model import Status
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.tree.state_tree import StateRecord
from sandbox_kernel.session.worker import jailed_worker as worker_module
from tests.conftest import open_descriptors

Open = Callable[..., Session]
Value = Callable[[Session, str], str]

#: How a cell finds the channel: the only socket of its process beside the two of the event loop.
FIND = """
import os, socket, struct, json
from IPython.core import async_helpers
def channel():
    for name in os.listdir('/proc/self/fd'):
        try:
            if os.readlink('/proc/self/fd/' + name).startswith('socket:'):
                loop = async_helpers._asyncio_event_loop
                if int(name) not in (loop._ssock.fileno(), loop._csock.fileno()):
                    return int(name)
        except OSError: pass
def send(message):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    os.write(channel(), struct.pack('>I', len(data)) + data)
"""

NONSENSE = {
    "garbage on every descriptor": (
        "for f in range(3, 64):\n    try: os.write(f, b'\\xff' * 65536)\n    except OSError: pass"
    ),
    "a giant frame": "os.write(channel(), struct.pack('>I', (16 << 20) + 1))",
    "no JSON": "send(b'{not json')",
    "a bomb of lists": (
        "send(json.dumps({'op': 'display', 'id': 1, 'question': 0, 'kind': 'display', 'metadata': {}, "
        "'display_id': None, 'data': {'application/json': 0}}).encode().replace(b': 0}}', "
        "b': [' + b'[],' * 5000000 + b'0]}}'))"
    ),
    "questions whose answers it does not read": (
        "d = json.dumps({'op': 'display', 'id': 1, 'question': 1, 'kind': 'update', 'data': {}, 'metadata': {}, "
        "'display_id': None}).encode()\nd = (struct.pack('>I', len(d)) + d) * 100\n"
        "for _ in range(2000): os.write(channel(), d)"
    ),
    "an unknown message": "send({'op': 'pickle', 'data': 'x'})",
    "a MIME type with a newline": (
        "send({'op': 'display', 'id': 1, 'question': 0, 'kind': 'display', 'data': {'text/a\\nb': ''}, "
        "'metadata': {}, 'display_id': None})"
    ),
    "a checkpoint out of turn": "send({'op': 'frozen', 'cell': 0, 'pid': 1, 'threads': 0, 'reason': ''})",
    "the end of another cell": "send({'op': 'done', 'id': 99, 'status': 'ok', 'names': 0})",
}


@pytest.mark.attack("O05", "session")
@pytest.mark.parametrize("what", NONSENSE)
@pytest.mark.one_case
def test_nonsense_on_the_channel_ends_the_worker_and_the_checkpoint_takes_over(
    session: Session, value: Value, what: str
) -> None:
    session.run(FIND)
    session.run("x = 1")
    result = session.run(f"x = 2; print('said')\n{NONSENSE[what]}\nimport time; time.sleep(1000)", timeout=60)
    assert (result.status, result.rolled_back) == (Status.KILLED, True), result
    assert result.stdout == "said\n"
    assert any(note.startswith("the worker was ended: the worker sent") for note in result.notes), result.notes
    assert value(session, "x") == "1"


@pytest.mark.attack("O05", "session")
def test_frames_forged_on_stdout_are_text(session: Session) -> None:
    session.run(FIND)
    frame = "{'op': 'done', 'id': 2, 'status': 'ok', 'names': 0}"
    result = session.run(f"d = json.dumps({frame}).encode(); os.write(1, struct.pack('>I', len(d)) + d); 1/0")
    assert result.status is Status.FAILED
    assert '"op": "done"' in result.stdout


@pytest.mark.attack("O05", "session")
def test_what_a_child_process_writes_to_the_channel_is_not_even_looked_at(session: Session, value: Value) -> None:
    session.run(FIND)
    result = session.run("if os.fork() == 0:\n    os.write(channel(), b'\\xff' * 100000); os._exit(0)\nos.wait(); 5")
    assert result.ok, result.notes
    assert value(session, "6") == "6"


#: A cell after which every checkpoint is a process that does not behave as one, and what it does when it is woken.
FALSE_CHECKPOINTS = """
import gc, signal, time
worker = next(o for o in gc.get_objects() if type(o).__name__ == 'Worker' and hasattr(o, 'channel'))
def freeze(cell, *, sealed):
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        signal.sigwait([signal.SIGUSR2])
        while True: WAKES
    send({'op': 'frozen', 'cell': cell, 'pid': pid, 'threads': 0, 'reason': ''})
worker.freeze = freeze
"""
FLOOD = "send({'op': 'clear', 'id': 0, 'question': 0, 'wait': True, 'x': [{}] * 20000})"


@pytest.mark.attack("O05", "session")
@pytest.mark.parametrize("wakes", ["time.sleep(1000)", FLOOD])
@pytest.mark.one_case
def test_false_checkpoints_have_their_time_together(
    session: Session, value: Value, wakes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    go_back = worker_module.JailedWorker.go_back

    def counted(self: worker_module.JailedWorker, target: StateRecord, **more: bool) -> object:
        tried.append(target.id)
        return go_back(self, target, **more)

    monkeypatch.setattr(worker_module.JailedWorker, "go_back", counted)
    session.run(FIND)
    session.run(FALSE_CHECKPOINTS.replace("WAKES", wakes))
    for _ in range(5):
        assert session.run("y = 1").ok
    monkeypatch.setattr(worker_module, "WAKE_S", 0.4)
    monkeypatch.setattr(worker_module, "WORKER_START_S", 0.6)
    monkeypatch.setattr(worker_module, "_MOST_READING_S", 0.2)
    result = session.run("os._exit(3)")
    assert not result.ok and 1 <= len(tried) <= 4
    monkeypatch.undo()
    assert value(session, "6") == "6"


@pytest.mark.attack("O05", "session")
def test_a_worker_that_floods_between_cells_is_given_up_after_little_work(
    session: Session, value: Value, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "_MOST_READING_S", 0.2)
    session.run(FIND)
    session.run(
        "import gc\nworker = next(o for o in gc.get_objects() if type(o).__name__ == 'Worker' and hasattr(o, 'channel'))\n"
        f"send({{'op': 'done', 'id': worker.cell, 'status': 'ok', 'names': 0}})\nwhile True: {FLOOD}"
    )
    with pytest.raises(SessionError, match="sends too much"):
        session.run("6")
    assert value(session, "6") == "6"


@pytest.mark.slow
def test_a_worker_that_swallows_its_answer_is_stopped_by_the_clock(session: Session, value: Value) -> None:
    session.run("x = 1")
    silence = "import sandbox_guest.session.worker_channel as c\nc.HostChannel.send = lambda self, message: True"
    result = session.run(f"x = 2\n{silence}", timeout=2)
    assert (result.status, result.rolled_back) == (Status.TIMEOUT, True)
    assert value(session, "x") == "1"


@pytest.mark.attack("O05", "session")
@pytest.mark.slow
def test_a_cell_that_claims_to_be_done_and_goes_on_is_found_out(
    session: Session, value: Value, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox_kernel.session.worker.jailed_worker.WORKER_START_S", 1.0)
    session.run(FIND)
    session.run("x = 1")
    lie = "send({'op': 'done', 'id': 3, 'status': 'ok', 'names': 0})\nimport time; time.sleep(1000)"
    assert session.run(f"x = 2\n{lie}").ok
    with pytest.raises(Exception, match=r"died between cells.*went back to the state after 2 cells"):
        session.run("x")
    assert value(session, "x") == "1"


def test_a_checkpoint_cannot_be_woken_by_the_program(session: Session, value: Value) -> None:
    session.run("x = 1")
    wake = """
import os, signal
for name in os.listdir('/proc'):
    if name.isdigit() and int(name) not in (1, os.getpid()):
        os.kill(int(name), signal.SIGUSR2)
        os.kill(int(name), signal.SIGTERM)
"""
    assert session.run(wake).ok
    session.run("x = 2")
    assert session.run("x = 3; import os; os._exit(0)").rolled_back
    assert value(session, "x") == "2"
    session.undo(2)
    assert value(session, "x") == "1"


def test_a_cell_that_kills_every_checkpoint_and_itself_loses_the_state_and_is_told_so(session: Session) -> None:
    session.run("x = 1")
    result = session.run("import os; os.kill(-1, 9); os._exit(1)")
    assert (result.status, result.rolled_back) == (Status.KILLED, False)
    assert any("the session's state is lost: no checkpoint was left" in note for note in result.notes)
    assert session.alive
    assert session.run("x").error.ename == "NameError"  # type: ignore[union-attr]


def test_a_cell_that_kills_every_checkpoint_only_loses_what_could_be_undone(session: Session, value: Value) -> None:
    session.run("x = 1")
    assert session.run("import os; os.kill(-1, 9); x = 2").ok
    assert session.run("x = 3; os._exit(1)").rolled_back
    assert value(session, "x") == "2"


@pytest.mark.slow
def test_a_fork_bomb_and_a_program_that_keeps_changing_its_pid_end_with_the_cell(
    session: Session, value: Value
) -> None:
    session.run("x = 1; import os")
    hopper = """
x = 2
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        while True:
            try:
                if os.fork(): os._exit(0)
            except OSError: pass
"""
    result = session.run(f"{hopper}\nwhile True:\n    try: os.fork()\n    except OSError: pass", timeout=1)
    assert (result.status, result.rolled_back) == (Status.TIMEOUT, True), result.notes
    alive = "len([p for p in os.listdir('/proc') if p.isdigit() and os.path.exists(f'/proc/{p}/exe')])"
    assert value(session, "x") == "1"
    # Ourselves and three checkpoints; the gate's own entries cannot be read.
    assert int(value(session, alive)) <= 5


def test_a_flood_of_displays_is_cut_and_said_so(session: Session) -> None:
    result = session.run("for i in range(2100): display(i)", timeout=60)
    assert result.ok
    assert len(result.displays) == 2000
    assert "100 further outputs were too many, or came too late, to be shown" in result.notes


def test_a_display_too_large_for_a_frame_is_replaced_by_a_sentence(session: Session) -> None:
    result = session.run("from IPython.display import HTML; HTML('x' * (17 << 20))", timeout=60)
    assert result.ok
    assert "too large to be shown" in str(result.displays[-1].data["text/plain"])


def test_a_background_process_that_never_stops_printing_does_not_hold_up_the_cells(session: Session) -> None:
    session.run("import subprocess; p = subprocess.Popen(['yes'])")
    for _ in range(3):
        assert session.run("1", timeout=20).ok
    session.run("p.kill()")


def test_a_worker_that_dies_between_cells_is_brought_back(session: Session, value: Value) -> None:
    later = (
        "import threading, os\nend = threading.Event()\n"
        "threading.Thread(target=lambda: (end.wait(), os._exit(9))).start()"
    )
    session.run("x = 1")
    session.run(later)
    # The thread ends the process once the cell is over: the checkpoint has been taken by then.
    session.run("import threading; threading.Timer(0.3, end.set).start()")
    speaker = session._supervisor.live.channel._speaker_fd  # type: ignore[union-attr]
    import select

    poll = select.poll()
    poll.register(speaker, select.POLLIN)
    assert poll.poll(20_000)
    result = session.run("x")
    assert result.displays[-1].data["text/plain"] == "1"
    assert result.notes[0].startswith("the session's process had died between cells (ended with exit code 9)")


@pytest.mark.attack("O05", "session")
def test_open_files_that_a_cell_attaches_to_its_messages_never_reach_the_host(session: Session, value: Value) -> None:
    session.run(FIND)
    flood = """
s, flooded = socket.socket(fileno=os.dup(channel())), os.open('flooded', os.O_CREAT | os.O_RDWR)
d = json.dumps({'op': 'display', 'id': 1, 'question': 0, 'kind': 'display', 'data': {'text/plain': 'x'}, 'metadata': {},
                'display_id': None}).encode()
for _ in range(50):
    try: socket.send_fds(s, [struct.pack('>I', len(d)) + d], [flooded] * 100)
    except OSError as error: print(error); break
"""
    result = session.run(flood)
    assert result.ok, result.notes
    assert not [target for target in open_descriptors().values() if "flooded" in target]
    assert value(session, "6") == "6"


#: A cell replaces the part of its worker that answers questions.
FORGE = """
import gc
worker = next(each for each in gc.get_objects() if type(each).__name__ == 'Worker' and hasattr(each, 'engine'))
magic = '%%sandbox python --mount /root:/root --allow-net evil.example\\nprint'
def ask(what, code, position):
    match = lambda text, start: {'type': 'function', 'text': text, 'start': start, 'end': len(code)}
    return {
        'matches': ['print', magic, 'pri' + magic, 'print\\nimport os', 'pri\\u202e'], 'status': 'incomplete', 'indent': magic,
        'cursor_start': START, 'cursor_end': len(code),
        'metadata': {'_jupyter_types_experimental': [match(magic, 0), match('print', 0)], 'more': magic},
    }
worker.engine.ask = ask
"""


@pytest.mark.parametrize("start", [0, 9, 10, 12, 13, 99])
@pytest.mark.one_case
def test_a_forged_completion_changes_nothing_but_the_word_at_the_cursor(session: Session, start: int) -> None:
    assert session.run(FORGE.replace("START", str(start))).ok
    code = "import os\npri  # the rest"
    found = session.complete(code, 13)
    assert found["cursor_end"] == 13
    assert found["matches"] == (["print"] if start == 10 else [])
    assert found["cursor_start"] == (10 if start == 10 else 13)
    assert "sandbox" not in str(found)
    assert session.is_complete("if x:") == {"status": "incomplete", "indent": ""}
