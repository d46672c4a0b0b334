"""The tables that benchmarks print, and the plots that are drawn from them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.svg_chart import Series, bar_chart, line_chart

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Table:
    """A Markdown table: the names of its columns, and its rows. The first entry of a row is its name."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def column(self, name: str) -> dict[str, float]:
        """Return the numbers of a column by row name; entries without a number are left out."""
        index = self.header.index(name)
        found = {row[0]: _NUMBER.search(row[index]) for row in self.rows}
        return {key: float(match[0]) for key, match in found.items() if match is not None}

    def lines(self) -> list[Series]:
        """Return every column as a line over the numbers of the first column."""
        columns = ((name, self.column(name)) for name in self.header[1:])
        return [Series(name, tuple((float(x), y) for x, y in column.items())) for name, column in columns]


@dataclass(frozen=True)
class Plot:
    """One picture: its section and table, its file name and title, and the function that draws it."""

    section: str
    table: str
    file: str
    title: str
    draw: Callable[[str, Table], str]


def find_table(text: str, title: str) -> Table | None:
    """Return the table below the heading that starts with ``title``; the first table of all if there is no title."""
    _, found, rest = text.partition(f"### {title}") if title else ("", "all of it", text)
    lines: list[str] = []
    for line in rest.splitlines()[1:] if found else []:
        if line.startswith("|"):
            lines.append(line)
        elif lines or (line.startswith("#") and title):
            break
    if len(lines) < 3:
        return None
    header, _, *rows = (tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines)
    return Table(header, tuple(rows))


def _starts(title: str, table: Table) -> str:
    bars = dict(sorted(table.column(table.header[-1]).items(), key=lambda bar: bar[1]))
    return bar_chart(title, bars, unit="time divided by that of a plain python3 -c", base=1.0, log=True)


def _rates(title: str, table: Table) -> str:
    return line_chart(title, table.lines(), x="at once", y="per second", log_x=True)


def _delays(title: str, table: Table) -> str:
    return line_chart(title, table.lines(), x="at once", y="ms", log_x=True, log_y=True)


def _heaps(title: str, table: Table) -> str:
    return line_chart(title, table.lines(), x="heap, MB", y="ms", log_x=True, log_y=True)


def _sessions(title: str, table: Table) -> str:
    return line_chart(title, table.lines(), x="sessions or kernels", y="MB", log_x=True, log_y=True)


def _idle(title: str, table: Table) -> str:
    return bar_chart(title, table.column("PSS, MB"), unit="MB (proportional set size)")


PLOTS = (
    Plot("start", "A fresh Python program", "start.svg", "A fresh Python program, against one without walls", _starts),
    Plot("memory", "Idle", "memory_idle.svg", "Memory when nothing runs", _idle),
    Plot("scaling", "Sessions", "scaling_sessions.svg", "Memory of everything, by the number of sessions", _sessions),
    Plot("scaling", "Heaps", "scaling_heaps.svg", "A checkpoint, by the size of the heap", _heaps),
    Plot("scaling", "Many at once: executions", "scaling_rate.svg", "Executions a second, by how many at once", _rates),
    Plot("scaling", "Many at once: 95th", "scaling_delay.svg", "95th percentile of one, by how many at once", _delays),
)


def draw(section: str, text: str) -> dict[str, str]:
    """Return the pictures of a section by file name, from its benchmark's output; none for a missing table."""
    found = ((plot, find_table(text, plot.table)) for plot in PLOTS if plot.section == section)
    return {plot.file: plot.draw(plot.title, table) for plot, table in found if table is not None}


def with_pictures(section: str, text: str, folder: str) -> str:
    """Add links to the pictures below the headings of their tables. A second call changes nothing."""
    drawn = draw(section, text)
    text = re.sub(rf"^!\[[^]]*\]\({re.escape(folder)}/\w+\.svg\)\n\n", "", text, flags=re.MULTILINE)
    for plot in reversed(PLOTS):
        if plot.section == section and plot.file in drawn:
            heading = re.search(rf"^### {re.escape(plot.table)}.*\n\n", text, re.MULTILINE)
            assert heading is not None
            text = f"{text[: heading.end()]}![{plot.title}]({folder}/{plot.file})\n\n{text[heading.end() :]}"
    return text
