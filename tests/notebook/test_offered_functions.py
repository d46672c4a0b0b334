"""``%sandbox functions NAME``: cells call functions of the Python kernel."""

from collections.abc import Iterator

import pytest

from sandbox_kernel.notebook.execution import NotebookState
from tests.notebook.test_here import Notebook


def search(query: str, limit: int = 2) -> list[str]:
    """Search the catalogue."""
    return [f"{query} {number}" for number in range(limit)]


async def double(number: int) -> int:
    return 2 * number


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    made = Notebook()
    made.state = NotebookState(variables={"search": search, "double": double, "number": 5}, in_python=True)
    yield made
    made.state.close()


@pytest.mark.slow
def test_cells_of_sessions_and_fresh_ones_call_functions_of_the_notebook(notebook: Notebook) -> None:
    notebook.state.sandboxes.sessions.prepare(notebook.state.defaults)  # as a kernel does before its first cell
    said = notebook.run("%sandbox functions search double")
    assert "from host import search, double" in said and "Search the catalogue." in said
    assert notebook.run("from host import search, double\nprint(search('a', 1), double(4))") == "['a 0'] 8\n"
    assert notebook.run("%%sandbox --fresh\nimport host\nprint(host.double(2))") == "4\n"
    assert notebook.run("%%sandbox command\nhost search b limit=1") == '["b 0"]\n'
    assert "Expected `str`, got `int`" in notebook.run("search(1)")


def test_a_session_that_runs_gets_them_with_restart_keep(notebook: Notebook) -> None:
    notebook.run("kept = 7")
    assert "%sandbox restart --keep" in notebook.run("%sandbox functions double")
    assert "No module named 'host'" in notebook.run("import host")
    notebook.run("%sandbox restart --keep")
    assert notebook.run("from host import double\nprint(double(kept))") == "14\n"


def test_off_takes_them_back_from_a_session_that_has_begun(notebook: Notebook) -> None:
    notebook.run("%sandbox functions double")
    assert notebook.run("from host import double\nprint(double(2))") == "4\n"
    listed = notebook.run("%sandbox functions")
    assert "from host import double" in listed and "began before" not in listed
    assert "may call no functions" in notebook.run("%sandbox functions off")
    assert "PermissionError: double is not offered any more" in notebook.run("double(3)")
    assert "began before" in notebook.run("%sandbox functions search")
    assert "PermissionError: double is not offered any more" in notebook.run("double(4)")
    notebook.run("%sandbox functions off\n%sandbox restart")
    assert "No module named 'host'" in notebook.run("import host")


def test_what_is_no_function_is_refused_and_nothing_changes(notebook: Notebook) -> None:
    notebook.run("%sandbox functions double")
    assert "number is no function but a int" in notebook.run("%sandbox functions search number")
    assert "this notebook has no serch" in notebook.run("%sandbox functions serch")
    listed = notebook.run("%sandbox functions")
    assert "double" in listed and "search" not in listed


def test_the_sandbox_kernel_says_where_functions_live() -> None:
    made = Notebook()
    try:
        assert "Python kernel and %load_ext sandbox_kernel" in made.run("%sandbox functions search")
    finally:
        made.state.close()
