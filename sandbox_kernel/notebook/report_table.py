"""The capability report as a page shows it without any widget: a table of what was measured. Pure.

Input is ``CapabilityReport.to_dict()``: ``rows`` of area, name, enforced (true, false, or null for "not tried"),
mechanism, evidence and ms; and ``languages``. The evidence quotes what a program in the sandbox met: it is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from sandbox_kernel.notebook.untrusted.tex import defused

SIGNS: Mapping[object, tuple[str, str]] = {True: ("✓", "#2e7d32"), False: ("✗", "#c62828"), None: ("–", "#757575")}


def rows_of(document: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The rows of a report, whatever else it holds."""
    rows = document.get("rows")
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, Sequence) else []


def report_text(document: Mapping[str, object]) -> str:
    """The report for terminals."""
    rows = rows_of(document)
    if not rows:
        return "Nothing was measured."
    width = max(len(_cell(row, "name")) for row in rows)
    lines, area = [], ""
    for row in rows:
        if _cell(row, "area") != area:
            area = _cell(row, "area")
            lines.append(area)
        detail = ": ".join(part for part in (_cell(row, "mechanism"), _cell(row, "evidence")) if part)
        lines.append(f"  {_sign(row)[0]} {_cell(row, 'name'):<{width}}  {detail}".rstrip())
    return "\n".join(lines)


def report_html(document: Mapping[str, object]) -> str:
    """The report for pages: static, every value escaped."""
    rows = rows_of(document)
    kept = sum(1 for row in rows if row.get("enforced") is True)
    body, area = [], ""
    for row in rows:
        if _cell(row, "area") != area:
            area = _cell(row, "area")
            body.append(f"<tr><th colspan='4' style='text-align:left;padding-top:6px'>{escape(area)}</th></tr>")
        sign, colour = _sign(row)
        body.append(
            f"<tr><td style='color:{colour};font-weight:700'>{sign}</td>"
            + "".join(
                f"<td style='text-align:left'>{escape(_cell(row, key))}</td>"
                for key in ("name", "mechanism", "evidence")
            )
            + "</tr>"
        )
    summary = f"{kept} of {len(rows)} promises are kept here, each tried in the sandbox"
    head = f"<caption style='text-align:left'>{summary}</caption>"
    return defused(f"<table class='mathjax_ignore'>{head}{''.join(body)}</table>")


def _cell(row: Mapping[str, object], key: str) -> str:
    value = row.get(key)
    return "" if value is None else str(value)


def _sign(row: Mapping[str, object]) -> tuple[str, str]:
    enforced = row.get("enforced")
    return SIGNS[enforced if isinstance(enforced, bool) else None]
