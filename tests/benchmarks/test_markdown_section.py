from pathlib import Path

import pytest

from benchmarks.markdown_section import replace_section, table

MARKERS = ("<!-- x: begin -->", "<!-- x: end -->")


def test_only_what_is_between_the_markers_changes(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("before\n<!-- x: begin -->\nold\n<!-- x: end -->\nafter\n")
    replace_section(document, *MARKERS, "new")
    replace_section(document, *MARKERS, "newer\n")
    assert document.read_text() == "before\n<!-- x: begin -->\nnewer\n<!-- x: end -->\nafter\n"


def test_a_document_without_the_markers_is_left_alone(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("no markers")
    with pytest.raises(ValueError, match="lacks the markers"):
        replace_section(document, *MARKERS, "new")
    assert document.read_text() == "no markers"


def test_a_bar_in_a_cell_does_not_split_it() -> None:
    assert table(["", "a"], [["b", "c|d"]]) == "|  | a |\n| --- | --- |\n| b | c\\|d |"
