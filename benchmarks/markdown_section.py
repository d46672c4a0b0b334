"""Puts generated Markdown between two markers of a document."""

from __future__ import annotations

from pathlib import Path


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table. A bar inside a cell is escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def section_of(document: Path, begin: str, end: str) -> str:
    """Return the text between two marker lines."""
    return _parts(document, begin, end)[1]


def replace_section(document: Path, begin: str, end: str, content: str) -> None:
    """Write ``content`` between two marker lines. Raises, and changes nothing, if the document lacks them."""
    head, _, tail = _parts(document, begin, end)
    inside = f"{content.strip()}\n" if content.strip() else ""
    document.write_text(f"{head}{begin}\n{inside}{end}{tail}")


def _parts(document: Path, begin: str, end: str) -> tuple[str, str, str]:
    head, found_begin, rest = document.read_text().partition(begin)
    inside, found_end, tail = rest.partition(end)
    if not (found_begin and found_end):
        raise ValueError(f"{document} lacks the markers {begin} and {end}; put them where the section belongs")
    return head, inside, tail
