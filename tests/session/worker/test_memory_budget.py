"""Memory of a session: the worker is the victim, checkpoints make room, and are never why a cell fails."""

import os
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.jail.accounting import meter as accounting_meter
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import Status
from sandbox_kernel.model.notes import NoteKind
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.worker import memory_budget
from sandbox_kernel.session.worker.channel import WorkerChannel

Open = Callable[..., Session]
Value = Callable[[Session, str], str]
MB = 1 << 20


@pytest.mark.slow
def test_a_cell_may_change_all_of_a_large_array_in_place_although_a_checkpoint_holds_the_old_one(
    open_one: Open, value: Value
) -> None:
    session = open_one(memory_mb=400)
    assert session.run("a = bytearray(b'1') * (250 << 20)", timeout=60).ok
    for digit in (50, 51, 52):
        result = session.run(f"for i in range(0, len(a), 4096): a[i] = {digit}", timeout=60)
        assert result.ok, result.notes
    assert session.run("for i in range(0, len(a), 4096): a[i] = 0\nimport os; os._exit(1)", timeout=60).rolled_back
    assert value(session, "a[0], a[-4096], len(a) >> 20") == "(52, 52, 250)"


def test_processes_that_take_long_to_look_at_are_looked_at_for_a_moment_and_then_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, asked = [0.0], list[int]()

    def slow(pid: int) -> int:
        now[0] += 0.02
        asked.append(pid)
        return MB

    meter = SimpleNamespace(members=lambda: list(range(100, 200)), arm=lambda *_: None, files_bytes=int, exact=False)
    jail, channel = SimpleNamespace(meter=meter, init_pid=1), SimpleNamespace(speaker=2)
    for name, stand_in in {"_private": slow, "inner_pid": lambda pid: pid, "anonymous_bytes": lambda _: 0}.items():
        monkeypatch.setattr(memory_budget, name, stand_in)
    monkeypatch.setattr(memory_budget, "time", SimpleNamespace(monotonic=lambda: now[0]))
    budget = memory_budget.MemoryBudget(cast(Jail, jail), cast(WorkerChannel, channel), 500 * MB, 64, 0)
    assert budget.used_bytes() == budget.used_bytes() == len(asked) * MB
    assert 0 < len(asked) < 5
    now[0] += 1
    budget.used_bytes()
    assert len(asked) < 10


@pytest.mark.slow
def test_checkpoints_that_do_not_fit_are_dropped_oldest_first(open_one: Open, value: Value) -> None:
    session = open_one(memory_mb=400)
    session.run("x = 0")
    for number in range(1, 5):
        session.run(f"a = bytearray(b'{number}') * (150 << 20); x = {number}", timeout=60)
    kept = [item.cell for item in session.checkpoints()]
    assert kept == sorted(kept, reverse=True)
    assert 1 <= len(kept) < 5
    assert kept[0] == 4
    session.undo()
    assert value(session, "x, a[0]") == "(3, 51)"


@pytest.mark.skipif(find_hierarchies() is None, reason="no control group may be made here: nobody counts kept states")
def test_a_cell_has_the_whole_limit_while_a_kept_state_holds_most_of_it_and_both_are_told_apart(open_one: Open) -> None:
    session = open_one(memory_mb=300)
    filled = session.run("a = bytearray(b'1') * (200 << 20)", timeout=60)
    assert (filled.peak_memory_bytes or 0) >> 20 in range(200, 216)
    assert session.run("del a").ok
    result = session.run("b = bytearray(b'2') * (250 << 20)", timeout=60)
    assert result.ok
    sizes = (result.peak_memory_bytes, result.added_memory_bytes, result.kept_memory_bytes)
    peak, added, kept = (0 if size is None else size >> 20 for size in sizes)
    assert (250 <= added <= peak <= 300, kept >= 195) == (True, True), sizes


def test_cells_that_only_add_kept_states_show_the_same_memory_and_measure_only_what_cells_started(
    open_one: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []
    monkeypatch.setattr(memory_budget, "_private", lambda pid: measured.append(pid) or 0)
    session = open_one(memory_mb=300)
    shown = [session.run(f"a{number} = {number}").peak_memory_bytes or 0 for number in range(6)]
    assert max(shown) - min(shown) < 2 * MB and not measured
    assert session.run("import subprocess; subprocess.Popen(['sleep', '60'])").ok
    assert any(session.run("1").ok and measured for _ in range(200))


@pytest.mark.slow
def test_states_that_are_given_up_for_memory_are_said_once_in_one_line(open_one: Open) -> None:
    session = open_one(memory_mb=400)
    results = [session.run(f"a = bytearray(b'{number}') * (150 << 20)", timeout=60) for number in range(8)]
    told = [note for result in results for note in result.notes if note.kind is NoteKind.LOST_CHECKPOINTS]
    reaches = [int(re.findall(r"reaches (\d+) cell", note)[0]) for note in told]
    assert reaches and reaches == sorted(set(reaches), reverse=True)
    assert all((result.peak_memory_bytes or 0) <= 400 * MB for result in results)


def test_memory_is_limited_although_checkpoints_have_room(open_one: Open, value: Value) -> None:
    session = open_one(memory_mb=300)
    session.run("a = bytearray(b'1') * (200 << 20)", timeout=60)
    result = session.run("b = bytearray(b'2') * (150 << 20)\nwhile True: pass", timeout=60)
    assert (result.status, result.limit, result.rolled_back) == (Status.MEMORY_EXCEEDED, "memory", True)
    assert value(session, "len(a) >> 20, 'b' in globals()") == "(200, False)"


@pytest.mark.skipif(find_hierarchies() is None, reason="no control group may be made here: nobody is killed")
def test_beside_a_worker_that_dies_at_its_limit_the_gate_has_room_until_the_state_is_back(
    open_one: Open, value: Value, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = open_one(memory_mb=200)
    session.run("a = 1")
    live, kill = session._supervisor.live, WorkerChannel.signal_speaker
    assert live is not None
    meter, room = live.jail.meter, list[int]()

    def signal_speaker(channel: WorkerChannel, number: int) -> bool:
        room.append(meter._memory_bytes - meter.usage_bytes())
        return kill(channel, number)

    monkeypatch.setattr(WorkerChannel, "signal_speaker", signal_speaker)
    usual = meter._memory_bytes
    assert session.run("b = bytearray(b'2') * (190 << 20)\nwhile True: pass", timeout=2).rolled_back
    assert room and min(room) > 190 * MB
    assert value(session, "a") == "1" and meter._memory_bytes <= usual + 16 * MB
    # What processes of earlier cells hold gives them no more when the next worker dies.
    for measured in ("usage_bytes", "held_bytes"):
        monkeypatch.setattr(meter, measured, lambda: 1 << 40)
    live.memory.relimit(1, dying=True)
    assert meter._memory_bytes <= 2 * (200 + 16) * MB
    # Control groups of version 1 refuse less than what is held: it is asked for again.
    asked = list[str]()
    monkeypatch.setattr(accounting_meter, "write", lambda path, text: asked.append(path) or os.open("/nowhere", 0))
    for _ in range(2):
        meter.relimit(99 * MB, meter._processes)
    assert asked and asked[: len(asked) // 2] * 2 == asked


@pytest.mark.skipif(
    find_hierarchies() is None, reason="no control group may be made here: an allocation is refused, nobody is killed"
)
def test_a_child_process_that_exceeds_the_memory_dies_alone(open_one: Open, value: Value) -> None:
    session = open_one(memory_mb=256)
    session.run("x = 1")
    result = session.run(
        "import subprocess, sys\n"
        "p = subprocess.run([sys.executable, '-c', 'b = bytearray(1 << 30)'])\nx = 2\np.returncode",
        timeout=60,
    )
    assert result.displays[-1].data["text/plain"] == "-9"
    assert (result.status, result.limit, result.rolled_back) == (Status.OK, "memory", False)
    assert "the kernel ended a process that the cell had started, for its memory; the session lives on" in result.notes
    assert value(session, "x") == "2"


#: Errors that name memory, and whether an allocation failed.
OWN_ERRORS = {
    "a raise": ("raise MemoryError('mine')", False),
    "a raise in a function": ("def f(): raise MemoryError\nf()", False),
    "an errno": ("import errno\nraise OSError(errno.ENOMEM, 'mine')", False),
    "after one that was handled": ("try: bytearray(1 << 50)\nexcept MemoryError: pass\nraise MemoryError", False),
    "one more raise of the same": ("try: bytearray(1 << 50)\nexcept MemoryError: raise", True),
    "another one for it": ("try: bytearray(1 << 50)\nexcept MemoryError as e: raise MemoryError('no') from e", True),
    "a mapping": ("import mmap\nmmap.mmap(-1, 1 << 50, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)", True),
    "just beyond what one allocation may be": ("b = b'x' * (8 << 30)", True),
}


def test_a_program_that_raises_a_memory_error_is_at_the_limit_only_when_memory_was_refused(
    session: Session, value: Value
) -> None:
    for name, (code, refused) in OWN_ERRORS.items():
        session.run("x = 1")
        result = session.run(f"x = 2\n{code}")
        assert result.error is not None and result.error.ename in ("MemoryError", "OSError"), name
        expected = (Status.MEMORY_EXCEEDED, "memory", True) if refused else (Status.FAILED, None, False)
        assert (result.status, result.limit, result.rolled_back) == expected, name
        assert value(session, "x") == ("1" if refused else "2"), name


@pytest.mark.slow
def test_the_same_holds_for_a_run() -> None:
    with Sandbox() as box:
        for name, (code, refused) in OWN_ERRORS.items():
            result = box.run(code)
            expected = (Status.MEMORY_EXCEEDED, "memory") if refused else (Status.FAILED, None)
            assert (result.status, result.limit) == expected, name


def test_a_memory_error_without_a_checkpoint_keeps_the_state(open_one: Open, value: Value) -> None:
    session = open_one(checkpoints=0)
    session.run("x = 1")
    result = session.run("x = 2\nbytearray(1 << 50)")
    assert (result.status, result.rolled_back) == (Status.MEMORY_EXCEEDED, False)
    assert value(session, "x") == "2"


def test_files_count_against_the_memory_and_go_back_with_it(open_one: Open, value: Value) -> None:
    session = open_one(memory_mb=128)
    result = session.run("open('/tmp/big', 'wb').write(bytes(100 << 20))", timeout=60)
    assert result.status in (Status.FAILED, Status.MEMORY_EXCEEDED)
    assert value(session, "1") == "1"


@pytest.mark.skipif(
    find_hierarchies() is None, reason="no control group may be made here: threads meet the limit of memory first"
)
def test_a_checkpoint_can_be_made_when_the_cell_has_used_up_its_processes(session: Session, value: Value) -> None:
    code = (
        "import threading\nstop = threading.Event()\ntry:\n    while True: threading.Thread(target=stop.wait).start()\n"
    )
    assert session.run(code + "except RuntimeError: x = 1").limit == "processes"
    assert session.run("x = 2; import os; os._exit(1)").rolled_back
    assert value(session, "x") == "1"


def test_a_short_cell_shows_what_it_added_and_an_idle_session_what_its_processes_hold(session: Session) -> None:
    assert (session.run("a = bytearray(b'1') * (30 << 20)").added_memory_bytes or 0) >= 30 * MB
    session.run("a = None")
    live = session._supervisor.live
    assert live is not None
    assert session.checkpoints()[0].cell == 1
    held = memory_budget.private_bytes(live.jail.init_pid)
    # Only the checkpoint taken after the first cell still has the array.
    assert sum(1 for size in held.values() if size > 25 * MB) == 1


@pytest.mark.skipif(find_hierarchies() is None, reason="without a control group an allocation says what it wanted")
def test_a_cell_that_is_ended_for_memory_says_what_it_had_asked_for(session: Session) -> None:
    wanted = session.run("a = bytearray(b'1') * (1 << 30)").wanted_memory_bytes
    assert wanted is not None and 1 << 30 <= wanted < 5 << 28


@pytest.mark.slow
def test_processes_used_up_faster_than_anybody_looks_are_told_of_the_cell_that_did_it(open_one: Open) -> None:
    session = open_one(limits=Limits(processes=16))
    bomb = "import os\ntry:\n  while os.fork() or os.execv('/bin/sleep', ['sleep', '60']): pass\nexcept OSError: pass"
    for again in range(3):
        session.restart()
        assert session.run(bomb).limit == "processes", again
        assert session.run("x = 1").limit is None, again
