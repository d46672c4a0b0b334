"""An undo takes back what its session changed, and nothing that other sessions, single runs or the user changed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.session.session import Session


def run(session: Session, code: str) -> str:
    result = session.run(code)
    assert result.ok, result.stderr
    return result.stdout


def kinds(box: Sandbox) -> dict[str, str]:
    return {change.path: change.kind for change in box.diff()}


CHANGE_EVERYTHING = """
import os
open('report.txt', 'w').write('of the other'); open('run.sh', 'w').write('of the other')
os.remove('data/more.csv'); os.makedirs('plots'); open('plots/one', 'w').write('1')
"""
LOOK = (
    "import os; print(open('report.txt').read(), open('run.sh').read(), os.listdir('data'), open('plots/one').read(), "
    "os.path.exists('own'))"
)
OF_THE_OTHER = {
    "data/more.csv": "deleted",
    "plots": "created",
    "plots/one": "created",
    "report.txt": "created",
    "run.sh": "modified",
}


@pytest.mark.one_case
def test_undo_keeps_what_another_session_has_made(box: Sandbox) -> None:
    with box.session() as session, box.session() as other:
        for _ in range(2):
            run(session, "x = 1")
        run(other, CHANGE_EVERYTHING)
        run(session, "open('own', 'w').write('mine')")
        run(session, "x = 2")
        assert kinds(box) == {**OF_THE_OTHER, "own": "created"}
        session.undo(3)
        assert kinds(box) == OF_THE_OTHER
        wanted = "of the other of the other ['rows.csv'] 1 False\n"
        assert run(session, LOOK) == wanted and run(other, LOOK) == wanted
        session.undo(2)
        assert kinds(box) == OF_THE_OTHER and run(session, LOOK) == wanted


@pytest.fixture(params=["layer", "copy", "plain"])
def any_box(request: pytest.FixtureRequest, project: Path) -> Iterator[Sandbox]:
    """As ``box``, and one with a work folder of its own."""
    with Sandbox(here=None if request.param == "plain" else project) as made:
        if request.param == "copy":
            made.backend = ProcessBackend(enforcer="landlock", policy=made.policy)
        yield made


def test_undo_keeps_a_file_of_another_session_that_the_session_has_changed_too(any_box: Sandbox) -> None:
    with any_box.session() as session, any_box.session() as other:
        for _ in range(2):
            run(session, "x = 1")
        run(other, "import os; os.makedirs('out'); [open(n, 'w').write('theirs') for n in ('out/both', 'gone')]")
        run(session, "import os; open('out/both', 'a').write(' and mine'); os.remove('gone'); open('own', 'w').close()")
        assert run(other, "print(open('out/both').read())") == "theirs and mine\n"
        for _ in range(2):  # further back, with the same result
            session.undo(2)
            assert kinds(any_box) == {"out": "created", "out/both": "created", "gone": "created"}
            for each in (session, other):
                assert run(each, "print(open('out/both').read(), open('gone').read())") == "theirs theirs\n"


def test_undo_neither_overwrites_what_another_session_has_written_nor_brings_back_what_it_has_removed(
    any_box: Sandbox,
) -> None:
    with any_box.session() as session, any_box.session() as other:
        run(session, "import os; os.makedirs('out/deep'); open('out/deep/file', 'w').write('mine')")
        run(session, "open('log', 'w').write('mine'); open('kept', 'w').write('mine')")
        run(other, "import shutil; shutil.rmtree('out')")
        run(other, "import os; open('log', 'a').write(' and theirs'); os.rename('kept', 'moved')")
        session.undo(2)
        for each in (session, other):
            look = "import os; print(open('log').read(), open('moved').read(), os.path.exists('kept'), os.path.exists('out'))"
            assert run(each, look) == "mine and theirs mine False False\n"


def test_redo_keeps_what_another_session_has_made_meanwhile(box: Sandbox) -> None:
    with box.session() as session, box.session() as other:
        run(session, "open('own', 'w').write('mine')")
        session.undo()
        run(other, CHANGE_EVERYTHING)
        run(session, "x = 1")
        session.undo()
        assert kinds(box) == OF_THE_OTHER
        session.checkout(1)
        assert kinds(box) == {**OF_THE_OTHER, "own": "created"}
        assert run(session, LOOK) == "of the other of the other ['rows.csv'] 1 True\n"


def test_undo_makes_no_deletion_of_a_file_that_the_user_has_added(box: Sandbox, project: Path) -> None:
    with box.session() as session:
        for _ in range(2):
            run(session, "x = 1")
        (project / "new.csv").write_text("of the user")
        (project / "data/rows.csv").write_text("of the user")
        run(session, "assert open('new.csv').read() == open('data/rows.csv').read() == 'of the user'")
        session.undo(2)
        assert kinds(box) == {} and box.apply() == ()
        assert (
            run(session, "print(open('new.csv').read(), open('data/rows.csv').read())") == "of the user of the user\n"
        )
        assert (project / "new.csv").read_text() == (project / "data/rows.csv").read_text() == "of the user"


def test_undo_neither_brings_back_what_was_dropped_nor_takes_away_what_was_applied(box: Sandbox, project: Path) -> None:
    with box.session() as session:
        run(session, "x = 1")
        run(session, "open('dropped', 'w').write('1'); open('applied', 'w').write('1')")
        run(session, "x = 2")
        box.discard(["dropped"])
        box.apply(["applied"])
        run(session, "x = 3")
        session.undo(1)
        assert kinds(box) == {}
        session.undo(2)
        assert kinds(box) == {} and (project / "applied").read_text() == "1"
        assert run(session, "import os; print(os.path.exists('dropped'), open('applied').read())") == "False 1\n"


def test_a_file_of_another_session_in_a_folder_of_the_session_outlives_undo(box: Sandbox) -> None:
    with box.session() as session, box.session() as other:
        run(session, "x = 1")
        run(session, "import os; os.makedirs('out'); open('out/mine', 'w').write('1')")
        run(other, "open('out/theirs', 'w').write('1')")
        run(session, "x = 2")
        session.undo(2)
        assert run(session, "import os; print(os.listdir('out'))") == "['theirs']\n"
        assert kinds(box) == {"out": "created", "out/theirs": "created"}


#: Kills the newest checkpoint and then the session's worker: the state of an earlier cell takes over.
END_BOTH = """
frozen = [int(p) for p in open(f'/proc/self/task/{os.getpid()}/children').read().split()]
os.kill(frozen[-1], 9); os._exit(1)
"""


def test_changes_of_a_cell_are_not_listed_when_its_state_was_lost_with_its_checkpoint(box: Sandbox) -> None:
    with box.session() as session, box.session() as other:
        run(session, "import os; open('first', 'w').write('1')")
        run(other, "open('report.txt', 'w').write('of the other')")
        run(session, "open('run.sh', 'w').write('mine'); open('own', 'w').write('mine'); os.remove('data/more.csv')")
        result = session.run(END_BOTH)
        assert any("rolled back to an older state" in note for note in result.notes), result.notes
        seen = "print(os.path.exists('own'), open('run.sh').read()[:9], open('report.txt').read())"
        assert run(session, seen) == "False #!/bin/sh of the other\n"
        assert kinds(box) == {"first": "created", "report.txt": "created"}
        assert run(other, f"import os; {seen}") == "False #!/bin/sh of the other\n"


def test_cells_that_run_again_do_not_write_over_what_another_session_has_changed_since(box: Sandbox) -> None:
    with box.session(checkpoints=1) as session, box.session() as other:
        run(session, "import os; open('gone', 'w').write('mine'); open('run.sh', 'w').write('mine')")
        run(session, "text = open('gone').read(); open('again', 'w').write('mine'); os.remove('data/more.csv')")
        state = session.history()[-1].id
        run(other, "import os; os.remove('gone'); open('run.sh', 'w').write('theirs'); open('data/more.csv', 'w')")
        for number in range(6):
            run(session, f"x = {number}; open('again', 'a').write('{number}')")
        assert not [node for node in session.history() if node.id == state and node.alive]
        moved = session.checkout(state)
        assert any("cells ran again" in note for note in moved.notes), moved.notes
        look = "import os; print(os.path.exists('gone'), open('run.sh').read(), open('again').read(), "
        look += "os.path.getsize('data/more.csv'))"
        assert run(session, f"print(text); {look}") == "mine\nFalse theirs mine 0\n"
        assert run(other, look) == "False theirs mine 0\n"
        assert kinds(box) == {"again": "created", "data/more.csv": "modified", "run.sh": "modified"}
