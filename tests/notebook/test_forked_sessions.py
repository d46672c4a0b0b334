"""``%sandbox fork NAME`` in a notebook: a second session with the same state, which ``--session NAME`` enters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.notebook.test_here import Notebook


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    made = Notebook()
    yield made
    made.state.close()


def test_a_fork_has_the_state_and_both_go_on_by_themselves(notebook: Notebook) -> None:
    notebook.run("x = [1]\nopen('f', 'w').write('both')\nlines = (n for n in x)")
    said = notebook.run("%sandbox fork other")
    assert "%%sandbox --session other" in said and "lost: lines (generator" in said
    assert notebook.run("%%sandbox --session other\nx.append(2); print(x, open('f').read())") == "[1, 2] both\n"
    assert notebook.run("x.append(3); print(x)") == "[1, 3]\n"
    notebook.run("%sandbox undo")
    assert notebook.run("print(x)") == "[1]\n", "line commands mean the session of the last cell"
    assert notebook.run("%%sandbox --session other\nprint(x)") == "[1, 2]\n"


def test_a_fork_has_the_limits_of_its_session_and_no_cell_of_it_runs_fresh(notebook: Notebook) -> None:
    notebook.run("%sandbox --disk 32M\nx = 1")
    notebook.run("%sandbox fork other")
    assert notebook.run("%%sandbox --session other\nprint(x)") == "1\n"


def test_without_a_session_there_is_nothing_to_fork(notebook: Notebook) -> None:
    assert "there is no running" in notebook.run("%sandbox fork other")
    assert "needs a name" in notebook.run("%sandbox fork")
