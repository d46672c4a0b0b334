"""An undo in a plain work folder takes back what its session changed, and nothing that other sessions changed.

For a folder of the user: ``here/test_undo_beside_others.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.session.session import Session


@pytest.fixture
def sessions() -> Iterator[tuple[Sandbox, Session, Session]]:
    with Sandbox() as box, box.session() as session, box.session() as other:
        yield box, session, other


def run(session: Session, code: str) -> str:
    result = session.run(code)
    assert result.ok, result.stderr
    return result.stdout


def test_undo_keeps_a_file_of_another_session_that_the_session_has_changed_too(
    sessions: tuple[Sandbox, Session, Session],
) -> None:
    box, session, other = sessions
    for _ in range(2):
        run(session, "x = 1")
    run(
        other, "import os; os.makedirs('out'); open('out/both', 'w').write('theirs'); open('gone', 'w').write('theirs')"
    )
    run(session, "import os; open('out/both', 'a').write(' and mine'); os.remove('gone'); open('own', 'w').write('')")
    assert run(other, "print(open('out/both').read())") == "theirs and mine\n"
    for count in (1, 1):
        session.undo(count)
        for each in (session, other):
            look = "import os; print(open('out/both').read(), open('gone').read(), sorted(os.listdir('.')))"
            assert run(each, look) == "theirs theirs ['gone', 'out']\n"
        session.undo()
    assert box.read_file("out/both") == b"theirs"


def test_undo_does_not_overwrite_what_another_session_has_written_since_the_last_cell(
    sessions: tuple[Sandbox, Session, Session],
) -> None:
    _, session, other = sessions
    run(session, "open('log', 'w').write('mine'); open('kept', 'w').write('mine')")
    run(other, "import os; open('log', 'a').write(' and theirs'); os.rename('kept', 'moved')")
    session.undo()
    for each in (session, other):
        look = "import os; print(open('log').read(), open('moved').read(), sorted(os.listdir('.')))"
        assert run(each, look) == "mine and theirs mine ['log', 'moved']\n"


def test_undo_does_not_bring_back_what_another_session_has_removed(sessions: tuple[Sandbox, Session, Session]) -> None:
    box, session, other = sessions
    run(session, "import os; os.makedirs('out/deep'); open('out/deep/file', 'w').write('mine')")
    run(session, "x = 1")
    run(other, "import shutil; shutil.rmtree('out')")
    run(session, "x = 2")
    session.undo(2)
    for each in (session, other):
        assert run(each, "import os; print(os.listdir('.'))") == "[]\n"
    assert box.diff() == ()
