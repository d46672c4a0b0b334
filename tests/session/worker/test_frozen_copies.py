"""Checkpoints against the cells that come after them: not to be read, written, traced, crippled, replaced or forged,
and not to be killed in silence."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.errors import CheckpointGone, EnforcerUnavailable
from sandbox_kernel.jail.accounting.processes import living, tree
from sandbox_kernel.model import Status
from sandbox_kernel.session.open_session import open_session
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.worker.memory_budget import can_be_sealed

Open = Callable[..., Session]
Value = Callable[[Session, str], str]

#: The pids of the checkpoints: children of the cell's own process.
FROZEN = "frozen = [int(p) for p in open(f'/proc/self/task/{os.getpid()}/children').read().split()]"

#: Whoever can be looked into through one of these files, besides the cell itself.
LOOKED_INTO = {
    "python": """
import os
seen = []
for name in os.listdir('/proc'):
    if name.isdigit() and int(name) != os.getpid():
        for part, flags in {'mem': os.O_RDWR, 'maps': 0, 'environ': 0, 'auxv': 0, 'fd': 0, 'map_files': 0, 'root': 0}.items():
            try: seen.append(f'{name}/{part} {os.read(fd, 1) if os.path.isfile(f"/proc/{name}/{part}") else os.listdir(fd)}' if (fd := os.open(f'/proc/{name}/{part}', flags)) else '')
            except OSError: pass
print(seen)
""",
    "javascript": """
const fs = require('fs'), seen = [];
for (const name of fs.readdirSync('/proc')) if (/^[0-9]+$/.test(name) && Number(name) !== process.pid)
  for (const part of ['mem', 'maps', 'environ', 'auxv']) {
    try { seen.push(`${name}/${part} ${fs.readSync(fs.openSync(`/proc/${name}/${part}`, part === 'mem' ? 'r+' : 'r'), Buffer.alloc(1))}`) } catch {}
  }
console.log(seen.length ? seen : '[]')
""",
    "command": r"""
for each in /proc/[0-9]*; do
  pid=${each#/proc/}
  [ "$pid" = "$$" ] || [ "$pid" = "$PPID" ] || head -c 1 "$each/maps" 2>/dev/null
done
echo '[]'
""",
}


@pytest.fixture
def landlocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session as on a host without user namespaces."""
    monkeypatch.setattr("sandbox_kernel.jail.enforcer.LADDER", ("landlock",))
    try:
        session = open_session(ProcessBackend())
    except EnforcerUnavailable as error:
        pytest.skip(str(error))
    yield session
    session.close()


@pytest.mark.parametrize("language", LOOKED_INTO)
@pytest.mark.one_case
def test_a_later_cell_cannot_look_into_a_checkpoint(open_one: Open, language: str) -> None:
    session = open_one(language)
    session.run("1" if language != "command" else "x=1")
    assert len(session.checkpoints()) == 1
    assert session.run(LOOKED_INTO[language]).stdout == "[]\n"


@pytest.mark.slow
def test_a_cell_that_was_taken_back_leaves_nothing_in_the_memory_of_a_checkpoint(
    session: Session, value: Value
) -> None:
    session.run("state = bytearray(b'ORIGINAL-STATE-' + b'745')")
    poison = f"""
import os
{FROZEN}
key = bytes(x ^ 1 for x in b'NSHFHO@M,RU@UD,654')
for pid in frozen:
    try:
        with open(f'/proc/{{pid}}/mem', 'r+b', buffering=0) as mem:
            for line in open(f'/proc/{{pid}}/maps'):
                start, end = (int(x, 16) for x in line.split()[0].split('-'))
                if 'rw-p' in line and end - start < 64 << 20:
                    mem.seek(start); at = mem.read(end - start).find(key)
                    if at >= 0: mem.seek(start + at); mem.write(b'POISONED'); print('poisoned')
    except OSError: pass
"""
    assert session.run(poison).stdout == ""
    session.undo()
    assert value(session, "state") == "bytearray(b'ORIGINAL-STATE-745')"
    assert session.run(f"{poison}\nos._exit(1)").rolled_back
    assert value(session, "state") == "bytearray(b'ORIGINAL-STATE-745')"


@pytest.mark.slow
def test_behind_landlock_a_checkpoint_cannot_be_written_to(landlocked: Session) -> None:
    landlocked.run("1")
    attempt = f"import os\n{FROZEN}\nfor pid in frozen:\n    try: print(os.open(f'/proc/{{pid}}/mem', os.O_RDWR))\n"
    result = landlocked.run(f"{attempt}    except OSError as error: print('no')")
    assert set(result.stdout.split()) == {"no"}, result.stderr
    if can_be_sealed("landlock"):
        assert (
            landlocked.run(attempt.replace("RDWR", "RDONLY") + "    except OSError: print('no')").stdout == "no\n" * 3
        )


def test_a_checkpoint_that_woke_can_be_looked_into_again_unless_its_cell_forbids_it(
    session: Session, value: Value
) -> None:
    dumpable = "ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)"
    session.run("import os, ctypes, resource")
    session.run("x = 1")
    session.undo()
    assert value(session, dumpable) == "1"
    assert value(session, "open('/proc/self/oom_score_adj', 'r+').write('1000')") == "4"
    session.run("ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)")
    assert session.run("os._exit(1)").rolled_back
    assert value(session, dumpable) == "0"


def test_the_limits_of_a_checkpoint_cannot_be_changed_and_one_tied_to_a_processor_wakes_on_all(
    session: Session, value: Value
) -> None:
    session.run("import os, resource")
    session.run("x = 1")
    cripple = f"""
{FROZEN}
for pid in frozen:
    try: resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0)); print('crippled')
    except PermissionError: print('refused')
    os.sched_setaffinity(pid, [min(os.sched_getaffinity(0))])
"""
    assert session.run(cripple).stdout == "refused\n" * 3
    assert session.run(f"{cripple}\nos._exit(1)").rolled_back
    assert value(session, "len(os.listdir('.'))") == "0"
    assert value(session, "len(os.sched_getaffinity(0))") == str(len(os.sched_getaffinity(0)))


@pytest.mark.parametrize("language", ["python", "javascript"])
@pytest.mark.one_case
def test_a_checkpoint_wakes_although_a_cell_has_stopped_it_and_sent_it_as_many_signals_as_there_can_be(
    open_one: Open, language: str
) -> None:
    session = open_one(language, memory_mb=512)
    if language == "python":
        session.run("x = 1; import os, signal")
        result = session.run(
            f"x = 2\n{FROZEN}\n"
            "for pid in frozen:\n"
            "    os.kill(pid, signal.SIGSTOP)\n"
            "    for number in (signal.SIGRTMIN + 3, signal.SIGRTMIN + 5, signal.SIGUSR2):\n"
            "        for _ in range(60_000): os.kill(pid, number)\n"
            "os._exit(1)",
            timeout=60,
        )
        shown = "print(x)"
    else:
        session.run("var x = 1; const fs = require('fs')")
        result = session.run(
            "x = 2; for (const pid of fs.readFileSync(`/proc/self/task/${process.pid}/children`, 'utf8').trim().split(' ')) {"
            " process.kill(Number(pid), 'SIGSTOP'); for (const n of [37, 39, 12]) for (let i = 0; i < 20000; i++)"
            " process.kill(Number(pid), n) } process.kill(process.pid, 'SIGKILL')",
            timeout=60,
        )
        shown = "console.log(x)"
    assert result.rolled_back, (result.status, result.notes, result.stderr)
    assert "rolled back to the state before this cell" in result.notes[-1]
    assert session.run(shown).stdout == "1\n"


def test_a_checkpoint_that_a_cell_killed_is_told_and_never_offered(session: Session, value: Value) -> None:
    session.run("x = 1; import os")
    session.run("x = 2")
    session.run("x = 3")
    killed = session.run(f"{FROZEN}\nos.kill(frozen[1], 9); os.waitpid(frozen[1], 0); x = 4")
    assert [item.cell for item in session.checkpoints()] == [3, 2, 0]
    told = [*killed.notes, *session.run("x = 5").notes]
    assert [note for note in told if "checkpoints were killed" in note] in (
        ["some checkpoints were killed, by the session itself or for memory: undo of 3 cells is not possible"],
        ["some checkpoints were killed, by the session itself or for memory: undo of 4 cells is not possible"],
    )
    with pytest.raises(CheckpointGone, match="nothing was taken back"):
        session.undo(4)
    assert value(session, "x") == "5"
    session.undo(4)
    assert value(session, "x") == "2"


def test_when_the_newest_checkpoint_was_killed_the_next_older_one_takes_over_and_it_is_said(
    session: Session, value: Value
) -> None:
    session.run("x = 1; import os")
    session.run("x = 2")
    result = session.run(f"{FROZEN}\nos.kill(frozen[-1], 9); os._exit(1)")
    assert (result.status, result.rolled_back) == (Status.KILLED, True)
    assert any("rolled back to an older state: the last 1 cell is taken back too" in note for note in result.notes)
    assert value(session, "x") == "1"


#: The worker of the session, and what it says of its checkpoints from now on.
LIE = """
import gc
w = [o for o in gc.get_objects() if type(o).__name__ == 'Worker' and hasattr(o, 'freezer')][0]
real = w.freezer.freeze
def forged(**how):
    pid, marks = real(**how)
    return (CLAIM if pid else pid), marks
w.freezer.freeze = forged
"""


def claims(session: Session, claim: str) -> tuple[str, ...]:
    """Run cells in a worker that lies about the pid of its checkpoints, more of them than are kept."""
    assert session.run(LIE.replace("CLAIM", claim)).ok
    for number in range(8):
        result = session.run(f"y = {number}")
        assert result.ok, result.notes
    return session.run("os._exit(1)").notes


@pytest.mark.parametrize(
    "claim",
    ["p.pid", "1", "os.getpid()", "frozen[0]", "10 ** 6", "1 << 40"],
    ids=["another", "init", "self", "frozen", "none", "huge"],
)
@pytest.mark.one_case
def test_a_pid_that_the_worker_claims_is_believed_only_if_it_is_a_new_checkpoint(session: Session, claim: str) -> None:
    session.run("import subprocess, os, signal; x = 1")
    session.run("p = subprocess.Popen(['sleep', '1000'], start_new_session=True)")
    session.run(f"{FROZEN}; frozen = [p for p in frozen if p != globals()['p'].pid]")
    if claim == "p.pid":
        # A child of the worker that is no checkpoint: nobody else's, so it may go, but it takes no other with it.
        claims(session, claim)
        return
    notes = claims(session, claim)
    assert any("rolled back" in note for note in notes), notes
    assert session.run("print(os.path.exists(f'/proc/{p.pid}'), x)").stdout == "True 1\n"


@pytest.mark.slow
def test_behind_landlock_no_process_outside_is_ended_for_a_pid_that_the_worker_claims(landlocked: Session) -> None:
    victim = subprocess.Popen(["sleep", "1000"])
    try:
        landlocked.run("import os; x = 1")
        notes = claims(landlocked, str(victim.pid))
        assert any("rolled back" in note for note in notes), notes
        assert victim.pid in living((victim.pid,))
    finally:
        victim.send_signal(signal.SIGKILL)
        victim.wait()


def test_a_worker_cannot_put_its_checkpoint_in_the_place_of_an_older_one(session: Session, value: Value) -> None:
    session.run("x = 'honest'; import os")
    session.run("y = 1")
    lie = """
import gc
w = [o for o in gc.get_objects() if type(o).__name__ == 'Worker' and hasattr(o, 'freezer')][0]
send = w.channel.send
w.channel.send = lambda message: send({**message, 'cell': 1} if message.get('op') == 'frozen' else message)
x = 'forged'
"""
    assert session.run(lie).ok
    with pytest.raises(Exception, match="checkpoint of cell 1; one of cell 3 was ordered"):
        session.run("1")
    session.undo()
    assert value(session, "x") == "'honest'"


def test_a_process_whose_first_thread_has_ended_does_not_outlive_the_cell_that_is_taken_back(session: Session) -> None:
    session.run("import os, threading, ctypes, time, platform")
    leave = """
read, write = os.pipe()
if os.fork() == 0:
    def stay():
        os.write(write, b'%d' % os.getpid()); time.sleep(60); os._exit(0)
    threading.Thread(target=stay).start()
    ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[platform.machine()], 0)
pid = int(os.read(read, 9)); print(pid)
while 'Z' not in open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[0]: time.sleep(0.01)
os._exit(1)
"""
    result = session.run(leave, timeout=30)
    assert result.rolled_back, result.notes
    assert session.run(f"print(os.path.exists('/proc/{int(result.stdout)}'))").stdout == "False\n"


def test_a_checkpoint_that_was_lost_is_not_taken_for_the_next_one_of_the_same_cell(
    session: Session, value: Value
) -> None:
    session.run("x = 1; import os")
    session.run("x = 2")
    # The newest is killed, the one before it takes over, and the cell after it is run again.
    session.run(f"{FROZEN}\nos.kill(frozen[-1], 9); os.waitpid(frozen[-1], 0); os._exit(1)")
    session.run("x = 22")
    session.run("x = 3")
    assert [item.cell for item in session.checkpoints()] == [2, 1, 0]
    session.undo()
    assert value(session, "x") == "22"


def test_the_copy_of_a_cell_that_is_taken_back_ends_with_it(session: Session, value: Value) -> None:
    """The worker makes it before the host knows that the cell ran out of memory."""
    value(session, "x = 1; x")
    with session._supervisor.turn() as worker:
        before = len(tree(worker.jail.init_pid))
    result = session.run("x = 2; y = bytearray(1 << 50)")
    assert (result.status, result.rolled_back) == (Status.MEMORY_EXCEEDED, True)
    with session._supervisor.turn():
        assert session._supervisor.live is worker
        assert len(tree(worker.jail.init_pid)) == before
    assert value(session, "x") == "1"
