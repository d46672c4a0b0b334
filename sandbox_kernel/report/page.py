"""The capability report as HTML (no scripts, every value escaped; a row unfolds to show its evidence) and as a widget.

The HTML has nothing that changes from one measurement to the next on a host, so that saved notebooks can be compared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any

from sandbox_kernel.receipt import describe_isolation
from sandbox_kernel.untrusted.tex import defused

MARK = {True: "✓", False: "✗", None: "?"}
WORD = {True: "enforced", False: "not enforced", None: "not testable here"}
_COLOUR = {True: "#2e7d32", False: "#c62828", None: "#9e6c00"}
_CELL = 'style="text-align:left;vertical-align:top"'
_EVIDENCE = 'style="padding-left:1em;opacity:.8"'


def report_page(document: Mapping[str, Any]) -> str:
    """Return a ``CapabilityReport.to_dict`` as HTML."""
    title = " · ".join((document["backend"], describe_isolation(document["isolation"]), document["host"]))
    counted = [row["enforced"] for row in document["lines"]]
    sums = [(word, counted.count(state)) for state, word in WORD.items()]
    summary = ", ".join(f"{number} {word}" for word, number in sums if number) or "Nothing was measured."
    parts = [f"<div><b>{escape(title)}</b></div><div>{summary}</div>"]
    if counted:
        parts.append(f"<table>{_head('area', 'tried', 'stopped', 'by')}{''.join(_lines(document['lines']))}</table>")
    if languages := document["languages"]:
        head = _head("language", "runs", "version", "from")
        parts.append(f"<table>{head}{''.join(_language(name, row) for name, row in languages.items())}</table>")
    if weaknesses := document["weaknesses"]:
        parts.append(f"<p>Known weaknesses</p><ul>{''.join(f'<li>{escape(text)}</li>' for text in weaknesses)}</ul>")
    if hidden := document.get("hidden"):
        parts.append(f"<p>Hidden in the folder that programs work on: {escape(', '.join(hidden))}</p>")
    # The evidence quotes output of a sandbox. It must not be typeset as a formula: formulas can contain links.
    return f'<div class="mathjax_ignore tex2jax_ignore" style="font-size:90%">{"".join(parts)}</div>'


def _head(*names: str) -> str:
    return f"<tr>{''.join(f'<th {_CELL}>{name}</th>' for name in names)}</tr>"


def _lines(rows: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    area = None
    for row in rows:
        state = row["enforced"]
        shown, area = ("" if row["area"] == area else row["area"]), row["area"]
        opened = "" if state is True else " open"
        name, evidence = escape(row["name"]), escape(row["evidence"])
        yield (
            f"<tr><td {_CELL}>{escape(shown)}</td>"
            f"<td {_CELL}><details{opened}><summary>{name}</summary><div {_EVIDENCE}>{evidence}</div></details></td>"
            f"{_mark(state, WORD[state])}<td {_CELL}>{escape(row['mechanism'])}</td></tr>"
        )


def _language(name: str, row: Mapping[str, Any]) -> str:
    available = row["available"]
    text = row["origin"] if available else "; ".join(row[key] for key in ("reason", "remedy") if row[key])
    return (
        f"<tr><td {_CELL}>{escape(name)}</td>{_mark(available, 'available' if available else 'not available')}"
        f"<td {_CELL}>{escape(row['version'])}</td><td {_CELL}>{escape(text)}</td></tr>"
    )


def _mark(state: bool | None, word: str) -> str:
    style = f"text-align:center;vertical-align:top;color:{_COLOUR[state]};font-weight:700"
    return f'<td style="{style}" title="{word}">{MARK[state]}</td>'


#: Measures again and returns a new ``to_dict()``. Its argument is a progress callback ``(done, total)``.
Measure = Callable[[Callable[[int, int], None]], Mapping[str, object]]


def report_explorer(document: Mapping[str, object], measure: Measure | None = None) -> Any:
    """Return a widget that shows a report and, unless ``measure`` is None, measures again."""
    import ipywidgets

    again = ipywidgets.Button(description="Run again", icon="refresh", disabled=measure is None)
    bar = ipywidgets.IntProgress(value=0, min=0, max=1, layout={"width": "160px", "display": "none"})
    when, page = ipywidgets.Label(), ipywidgets.HTML()

    def draw(document: Mapping[str, object]) -> None:
        page.value, at = defused(report_page(document)), document.get("measured_at")
        if isinstance(at, int | float) and at > 0:
            when.value = f"Measured on {time.strftime('%Y-%m-%d at %H:%M', time.localtime(at))}"

    def progress(done: int, total: int) -> None:
        bar.max, bar.value = total, done

    def remeasure() -> None:
        assert measure is not None
        bar.value, bar.layout.display = 0, ""
        try:
            draw(measure(progress))
        except Exception as error:  # no caller waits for this thread, so the page shows the error
            when.value = f"Measuring failed: {error}"
        finally:
            bar.layout.display, again.disabled = "none", False

    def clicked(_: object) -> None:
        again.disabled = True
        threading.Thread(target=remeasure, name="sandbox-report", daemon=True).start()

    again.on_click(clicked)
    draw(document)
    return ipywidgets.VBox([ipywidgets.HBox([again, bar, when]), page])


_VIEW = "application/vnd.jupyter.widget-view+json"
#: The widget that notebooks show. It is closed when the next one is shown: ipywidgets never frees open widgets.
_shown: list[Any] = []


def report_widget(document: Mapping[str, object], measure: Measure | None = None) -> Any:
    """Return the explorer, folded, for below the static report: a saved notebook cannot draw a widget later."""
    import ipywidgets

    while _shown:
        _close_tree(_shown.pop())
    inside = report_explorer(document, measure)
    _shown.append(ipywidgets.Accordion([inside], titles=("Explore the report",), selected_index=None))
    return _shown[0]


def _close_tree(widget: Any) -> None:
    for child in getattr(widget, "children", ()):
        _close_tree(child)
    widget.close()


def view(widget: Any) -> dict[str, object]:
    """Return the MIME bundle that shows a widget; clients without widgets show the text, the same in every run."""
    return {_VIEW: widget._repr_mimebundle_()[_VIEW], "text/plain": "Capability report, to explore"}
