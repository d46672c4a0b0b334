"""Puts generated Markdown between two markers of a document, so that numbers and words live together."""

from __future__ import annotations

from pathlib import Path


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; a bar inside a cell would split it and is escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def replace_section(document: Path, name: str, content: str) -> None:
    """Write ``content`` between ``<!-- name: begin -->`` and ``<!-- name: end -->``; without them it is an error."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = document.read_text()
    head, found_begin, rest = text.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not (found_begin and found_end):
        raise ValueError(f"{document} lacks the markers {begin} and {end}; put them where the section belongs")
    document.write_text(f"{head}{begin}\n{content.strip()}\n{end}{tail}")
