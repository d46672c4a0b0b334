"""The capability report as static HTML: no scripts, every value escaped; a row unfolds to show its evidence.

Used in a notebook's output, in the widget and by ``sandbox-kernel report --html``. It contains nothing that changes
from one measurement to the next on the same host, so that saved notebooks can be compared. Takes the value of
``CapabilityReport.to_dict``; parts of another shape are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from sandbox_kernel.receipt import describe_isolation

MARK = {True: "✓", False: "✗", None: "?"}
WORD = {True: "enforced", False: "not enforced", None: "not testable here"}
_COLOUR = {True: "#2e7d32", False: "#c62828", None: "#9e6c00"}
_CELL = 'style="text-align:left;vertical-align:top"'
_EVIDENCE = 'style="padding-left:1em;opacity:.8"'

Row = Mapping[object, object]


def report_page(document: Mapping[str, object], *, open_only: bool = False) -> str:
    """Return the report as HTML; with ``open_only`` only lines that are not enforced or not available."""
    lines = [row for row in _rows(document.get("lines")) if not (open_only and _enforced(row) is True)]
    languages = [
        (str(name), row)
        for name, row in _items(document.get("languages"))
        if not (open_only and row.get("available") is True)
    ]
    parts = [_heading(document)]
    if lines:
        parts.append(f"<table>{_head('area', 'tried', 'stopped', 'by')}{''.join(_lines(lines))}</table>")
    elif open_only and _rows(document.get("lines")):
        parts.append("<p><i>Everything that was tried was stopped.</i></p>")
    else:
        parts.append("<p><i>Nothing was measured.</i></p>")
    if languages:
        head = _head("language", "runs", "version", "from")
        parts.append(f"<table>{head}{''.join(_language(name, row) for name, row in languages)}</table>")
    weaknesses = document.get("weaknesses")
    if isinstance(weaknesses, Sequence) and not isinstance(weaknesses, str) and weaknesses:
        parts.append(
            f"<p>Known weaknesses</p><ul>{''.join(f'<li>{escape(str(text))}</li>' for text in weaknesses)}</ul>"
        )
    hidden = document.get("hidden")
    if isinstance(hidden, Sequence) and not isinstance(hidden, str) and hidden:
        parts.append(f"<p>Hidden in the folder that programs work on: {escape(', '.join(map(str, hidden)))}</p>")
    # The evidence quotes output of a sandbox. It must not be typeset as a formula: formulas can contain links.
    return f'<div class="mathjax_ignore tex2jax_ignore" style="font-size:90%">{"".join(parts)}</div>'


def _heading(document: Mapping[str, object]) -> str:
    given = {**document, "isolation": describe_isolation(str(document.get("isolation") or ""))}
    title = " · ".join(str(given[key]) for key in ("backend", "isolation", "host") if given.get(key))
    counted = [_enforced(row) for row in _rows(document.get("lines"))]
    sums = [(word, counted.count(state)) for state, word in WORD.items()]
    text = ", ".join(f"{number} {word}" for word, number in sums if number)
    return f"<div><b>{escape(title)}</b></div><div>{text}</div>"


def _head(*names: str) -> str:
    return f"<tr>{''.join(f'<th {_CELL}>{name}</th>' for name in names)}</tr>"


def _lines(rows: Iterable[Row]) -> Iterable[str]:
    area = None
    for row in rows:
        here, state = str(row.get("area", "")), _enforced(row)
        shown, area = ("" if here == area else here), here
        opened = "" if state is True else " open"
        name, evidence = escape(str(row.get("name", ""))), escape(str(row.get("evidence", "")))
        yield (
            f"<tr><td {_CELL}>{escape(shown)}</td>"
            f"<td {_CELL}><details{opened}><summary>{name}</summary><div {_EVIDENCE}>{evidence}</div></details></td>"
            f"{_mark(state, WORD[state])}<td {_CELL}>{escape(str(row.get('mechanism', '')))}</td></tr>"
        )


def _language(name: str, row: Row) -> str:
    available = row.get("available") is True
    text = (
        str(row.get("origin", ""))
        if available
        else "; ".join(str(row[key]) for key in ("reason", "remedy") if row.get(key))
    )
    return (
        f"<tr><td {_CELL}>{escape(name)}</td>{_mark(available, 'available' if available else 'not available')}"
        f"<td {_CELL}>{escape(str(row.get('version', '')))}</td><td {_CELL}>{escape(text)}</td></tr>"
    )


def _mark(state: bool | None, word: str) -> str:
    style = f"text-align:center;vertical-align:top;color:{_COLOUR[state]};font-weight:700"
    return f'<td style="{style}" title="{word}">{MARK[state]}</td>'


def _enforced(row: Row) -> bool | None:
    value = row.get("enforced")
    return value if isinstance(value, bool) else None


def _rows(value: object) -> list[Row]:
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, Sequence) else []


def _items(value: object) -> list[tuple[object, Row]]:
    found = value.items() if isinstance(value, Mapping) else ()
    return [(name, row) for name, row in found if isinstance(row, Mapping)]
