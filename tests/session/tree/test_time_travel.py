"""A real session goes back, forward and across its branches, with variables, files and what only a process holds."""

import pytest

from sandbox_kernel.errors import CheckpointGone, InvalidRequest, SessionError
from sandbox_kernel.model import NoteKind
from sandbox_kernel.session.session import Session
from tests.session.conftest import Open, Value


def kinds(result: object) -> list[NoteKind]:
    return [note.kind for note in result.notes]  # type: ignore[attr-defined]


def test_undo_and_redo_go_along_a_line_with_variables_files_and_generators(session: Session, value: Value) -> None:
    session.run("import itertools; g = itertools.count(); x = [next(g)]; open('a', 'w').write('1')")
    session.run("x.append(next(g)); open('a', 'a').write('2')")
    session.run("x.append(next(g)); open('a', 'a').write('3')")
    session.undo(2)
    assert value(session, "x, open('a').read()") == "([0], '1')"
    session.checkout(3)
    assert value(session, "x, open('a').read()") == "([0, 1, 2], '123')"
    session.undo(2)
    assert kinds(session.redo()) == [NoteKind.MOVED]
    assert value(session, "x, next(g), open('a').read()") == "([0, 1, 2], 3, '123')"


def test_a_branch_that_was_left_is_still_there_and_can_be_named(session: Session, value: Value) -> None:
    session.run("x = 1")
    base = session.checkpoint("base")
    session.run("x = 'left'")
    left = session.history()[-1]
    session.checkout("base")
    session.run("x = 'right'")
    session.checkout(left)
    assert value(session, "x") == "'left'"
    session.checkout(base)
    assert value(session, "x") == "1"
    tree = {node.id: node for node in session.history()}
    assert (tree[2].parent, tree[3].parent, tree[1].name) == (1, 1, "base")
    assert all(node.alive for node in tree.values())
    assert [node.id for node in tree.values() if node.present] == [5]
    assert tree[3].code == "x = 'right'"


def test_a_cell_that_had_to_be_ended_goes_back_to_the_state_that_was_checked_out(
    session: Session, value: Value
) -> None:
    session.run("x = 1")
    session.run("x = 2")
    session.checkout(1)
    result = session.run("x = 3; import os; os._exit(1)")
    assert result.rolled_back
    assert value(session, "x") == "1"
    session.checkout(2)
    assert value(session, "x") == "2", "the branch that was left has outlived it"


def test_a_state_that_was_thinned_out_is_made_again_and_that_is_said(open_one: Open, value: Value) -> None:
    session = open_one(checkpoints=1)
    session.run("n = 0; open('log', 'w').close()")
    for _ in range(12):
        session.run("n += 1; print(n, file=open('log', 'a'))")
    gone = next(node for node in session.history() if not node.alive and node.id > 1)
    result = session.checkout(gone)
    assert kinds(result)[0] is NoteKind.RUN_AGAIN
    assert "no longer held" in result.notes[0]
    assert f"; {gone.id} of them use files, time" in result.notes[0]
    assert "1 variable kept" in result.notes[1], "it said 0"
    assert session.history()[gone.id].alive
    assert value(session, "n") == str(gone.id - 1)
    assert value(session, "len(open('log').readlines())") == str(gone.id - 1)


def test_where_a_cell_ends_in_another_way_this_time_the_session_stays_where_it_was(
    open_one: Open, value: Value
) -> None:
    session = open_one(checkpoints=1)
    session.run("import os; flag = os.environ.get('TMPDIR', '/tmp') + '/flag'")
    for number in range(12):
        session.run(f"n = {number}; assert not os.path.exists(flag)")
    # This folder is no part of the state.
    session.run("open(flag, 'w').close()")
    gone = next(node for node in session.history() if not node.alive and node.id > 1)
    with pytest.raises(
        SessionError, match=rf"checkout of node {gone.id}: cell \d+ was run again and ended with failed"
    ):
        session.checkout(gone)
    assert value(session, "n") == "11"
    # The failed run must not be kept as the state of the node, where the next checkout would go.
    assert not session.history()[gone.id].alive
    with pytest.raises(SessionError, match="was run again and ended with failed"):
        session.checkout(gone)


def test_after_the_jail_was_lost_the_history_can_be_run_again(session: Session, value: Value) -> None:
    session.run("x = 1")
    session.run("x += 1")
    worker = session._supervisor.live
    assert worker is not None
    session._supervisor.live.jail.kill()  # type: ignore[union-attr]
    worker.jail.wait_dead()  # a short cell would otherwise end before its worker does
    with pytest.raises(SessionError, match="its state is lost"):
        session.run("x")
    tree = session.history()
    assert [(node.id, node.alive) for node in tree] == [(0, True), (1, False), (2, False)]
    result = session.checkout(2)
    assert kinds(result)[0] is NoteKind.RUN_AGAIN
    assert value(session, "x") == "2"


def test_a_state_says_that_it_cannot_hold_threads(session: Session) -> None:
    session.run("import threading; stop = threading.Event(); thread = threading.Thread(target=stop.wait, daemon=True)")
    session.run("thread.start()")
    held = [node.lacks for node in session.history()]
    assert held == [(), (), ("1 thread of earlier cells did not come back",)]


def test_a_thread_inside_of_a_library_is_none_of_the_users(session: Session) -> None:
    start = "import ctypes, os\n"
    start += "ctypes.CDLL(None).pthread_create(ctypes.byref(ctypes.c_ulong()), None, getattr(ctypes.CDLL(None), 'pause'), None)\n"
    assert session.run(start + "while len(os.listdir('/proc/self/task')) < 2: pass").ok
    assert [node.lacks for node in session.history()] == [(), ()]


def test_a_state_says_what_it_shares_with_all_others(session: Session) -> None:
    session.run("import socket, sqlite3, subprocess; server = socket.create_server(('127.0.0.1', 0))")
    session.run("base = sqlite3.connect('data.db'); base.execute('create table t (n)'); base.commit()")
    session.run("child = subprocess.Popen(['sleep', '60'])")
    session.run("server.close(); base.close(); child.kill(); child.wait()")
    shared = [[note.split(":")[0] for note in node.lacks] for node in session.history()]
    assert shared == [
        [],
        ["1 network socket"],
        ["1 network socket", "1 open sqlite database"],
        ["1 network socket", "1 open sqlite database", "1 child process"],
        [],
    ]


def test_restart_forgets_the_history(session: Session) -> None:
    session.run("x = 1")
    session.restart()
    assert [(node.id, node.alive, node.present) for node in session.history()] == [(0, True, True)]


def test_a_killed_branch_is_noticed_and_made_again(session: Session, value: Value) -> None:
    session.run("x = 1; import os, signal")
    session.run("x = 2")
    session.checkpoint("side")
    session.checkout(1)
    held = {node.id: node for node in session.history()}
    assert held[2].alive
    pid = session._supervisor.live.tree.records[2].pid  # type: ignore[union-attr]
    told = [*session.run(f"os.kill({pid}, signal.SIGKILL)").notes]
    while session.history()[2].alive:  # a killed process takes a moment to end
        told += session.run("pass").notes
    told += session.run("pass").notes
    assert [note.split(":")[0] for note in told] == ["the state 'side' is no longer held"]
    assert kinds(session.checkout(2))[0] is NoteKind.RUN_AGAIN
    assert value(session, "x") == "2"


def test_a_candidate_that_kills_all_states_is_named_with_the_state_that_is_left(session: Session, value: Value) -> None:
    session.run("x = 1; import os, signal")
    session.history()
    states = [item.pid for item in session._supervisor.live.tree.living()]  # type: ignore[union-attr]
    with pytest.raises(CheckpointGone, match=r"candidate 0 ended the copy .* after that candidate \(node 2\)"):
        session.explore([f"x = 2\nfor state in {states}: os.kill(state, signal.SIGKILL)", "x = 3"])
    assert value(session, "x") == "2"
    with pytest.raises(SessionError, match="no state before it lives either"):
        session.checkout(1)


def test_wrong_requests_are_refused_and_change_nothing(session: Session, value: Value) -> None:
    session.run("x = 1")
    for wrong in (0, -1, True, "1"):
        with pytest.raises(InvalidRequest, match="the number of cells to redo must be"):
            session.redo(wrong)  # type: ignore[arg-type]
    with pytest.raises(SessionError, match="nothing to redo"):
        session.redo()
    with pytest.raises(SessionError, match="there is no state 'nowhere' in this session; no state has a name yet"):
        session.checkout("nowhere")
    with pytest.raises(InvalidRequest, match="must not be a number"):
        session.checkpoint("12")
    assert value(session, "x") == "1"


@pytest.mark.parametrize("language", ["command", "javascript"])
def test_other_languages_have_the_tree_too(open_one: Open, language: str) -> None:
    session = open_one(language)
    first, second, show = {
        "command": ("x=1", "x=2", "echo $x"),
        "javascript": ("let x = 1", "x = 2", "console.log(x)"),
    }[language]
    session.run(first)
    session.run(second)
    if not session.history()[1].alive:
        pytest.skip(f"{language} sessions have no checkpoints on this machine")
    session.undo()
    assert session.run(show).stdout == "1\n"
    session.checkout(2)
    assert session.run(show).stdout == "2\n"
