"""A library stands in a notebook once, and stays there when its cell runs again."""

from __future__ import annotations

import pytest

from sandbox_kernel.notebook.frames.frame_libraries import NotebookLibraries, cells_gone
from sandbox_kernel.notebook.render import ShowOutput
from sandbox_kernel.untrusted.frames.frame_output import FRAME, LIBRARY

A, B = "aa" * 32, "bb" * 32


def kept(*names: str) -> NotebookLibraries:
    libraries = NotebookLibraries()
    for name in names:
        assert libraries.take({LIBRARY: {"sha256": name, "title": "x"}, "text/html": "x"})
    return libraries


def shown(libraries: NotebookLibraries, cell: str, *names: str) -> list[str]:
    frame = {FRAME: {"html": "", "libraries": list(names)}}
    return [name_of(message) for message in libraries.before(frame, cell)]


def at_the_end(libraries: NotebookLibraries, cell: str) -> list[str]:
    return [name_of(message) for message in libraries.after(cell)]


def name_of(message: ShowOutput) -> str:
    entry = message.data[LIBRARY]
    assert isinstance(entry, dict)
    return str(entry["sha256"])


def test_the_first_frame_brings_the_library_and_later_ones_do_not() -> None:
    libraries = kept(A, B)
    assert shown(libraries, "one 1", A) == [A]
    assert shown(libraries, "one 1", A) == []
    assert shown(libraries, "two 2", A, B) == [B]


@pytest.mark.parametrize("metadata", [{"cellId": "one"}, {"cellId": "two", "deletedCells": ["one", 3]}], ids=str)
def test_a_library_is_brought_again_when_the_cell_that_held_it_goes(metadata: dict[str, object]) -> None:
    libraries = kept(A)
    assert shown(libraries, "one 1", A) == [A]
    assert shown(libraries, "two 2", A) == []
    libraries.gone(cells_gone(metadata))
    shown(libraries, "two 3", A)
    assert at_the_end(libraries, "two 3") == [A]
    assert shown(libraries, "one 4", A) == []
    assert at_the_end(libraries, "one 4") == []


def test_a_figure_that_is_drawn_again_does_not_wait_for_a_library_that_the_page_has() -> None:
    libraries = kept(A, B)
    assert shown(libraries, "one 1", A) == [A]
    assert at_the_end(libraries, "one 1") == []
    libraries.gone(["one"])
    assert shown(libraries, "one 2", A, B) == [B]  # the page has never had this one
    assert at_the_end(libraries, "one 2") == [A]
    assert at_the_end(libraries, "one 2") == []


def test_a_program_that_clears_its_output_leaves_the_library_in_the_notebook() -> None:
    libraries = kept(A, B)
    assert shown(libraries, "one 1", A) == [A]
    assert shown(libraries, "two 2", B) == [B]
    libraries.cleared("two 2")
    libraries.cleared("two 2")
    assert shown(libraries, "two 2", A, B) == []
    assert at_the_end(libraries, "two 2") == [B]


def test_cells_without_an_id_do_not_bring_it_again() -> None:
    libraries = kept(A)
    assert [shown(libraries, f" {number}", A) for number in (1, 2)] == [[A], []]


def test_other_displays_are_neither_kept_nor_wait_for_anything() -> None:
    libraries = kept()
    assert not libraries.take({"text/plain": "x"})
    assert libraries.before({"text/plain": "x"}, "one 1") == []
    assert shown(libraries, "one 1", A) == []
