"""The names of cells: JupyterLab computes the same ones, from the numbers that ``debugInfo`` tells it."""

import pytest
from ipykernel.compiler import murmur2_x86

from sandbox_kernel.guest.python import cell_names
from sandbox_kernel.session import debug_link


@pytest.mark.parametrize("text", ["", "x", "xy", "xyz", "x = 1\n", "é" * 100, "print('a')\n" * 50])
def test_names_are_those_that_ipykernel_computes(text):
    assert cell_names.murmur2(text.encode(), cell_names.SEED) == murmur2_x86(text, cell_names.SEED)


def test_host_and_guest_agree():
    ours = (debug_link.CELL_FOLDER, debug_link.CELL_SUFFIX, debug_link.HASH_SEED)
    assert ours == (cell_names.CELL_FOLDER, cell_names.CELL_SUFFIX, cell_names.SEED)


def test_a_program_that_differs_from_its_cell_has_the_name_of_the_cell():
    texts = cell_names.CellTexts()
    path = texts.dump("%%sandbox\nx = 1", "#\nx = 1")
    assert path == cell_names.cell_file("%%sandbox\nx = 1")
    assert texts.name("#\nx = 1") == path
    assert texts.name("other") == cell_names.cell_file("other")
    assert texts.texts[path] == "%%sandbox\nx = 1"
