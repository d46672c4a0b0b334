"""The capability report as a widget, for ``report.as_widget()`` and ``%sandbox report``.

ipywidgets is imported by the first call.
"""

# mypy: disallow-untyped-calls=False
# ipywidgets has no types.

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from html import escape
from typing import Any

from sandbox_kernel.report.browser.measure import AREA, measure_page
from sandbox_kernel.report.page import report_page
from sandbox_kernel.untrusted.tex import defused

_SHOW_ALL, _SHOW_OPEN = "everything", "only what is not enforced"

#: Measures again and returns a new ``to_dict()``. Its argument is a progress callback ``(done, total)``.
Measure = Callable[[Callable[[int, int], None]], Mapping[str, object]]


def report_explorer(document: Mapping[str, object], measure: Measure | None = None) -> Any:
    """Return a widget that filters the lines of a report and, unless ``measure`` is None, can measure again."""
    import ipywidgets

    current = dict(document)
    choice = ipywidgets.ToggleButtons(options=[_SHOW_ALL, _SHOW_OPEN], style={"button_width": "auto"})
    again = ipywidgets.Button(description="Run again", icon="refresh", disabled=measure is None)
    browser = ipywidgets.Button(description="Try this browser", icon="window-maximize")
    browser.tooltip = "Frames in a page of ours try to reach this machine, as an output of a sandbox could"
    attempts = ipywidgets.HTML()
    bar = ipywidgets.IntProgress(value=0, min=0, max=1, layout={"width": "160px", "display": "none"})
    when = ipywidgets.Label(_when(current))
    page = ipywidgets.HTML(_page(current, _SHOW_ALL))

    def draw(_: object = None) -> None:
        page.value, when.value = _page(current, choice.value), _when(current)

    def progress(done: int, total: int) -> None:
        bar.max, bar.value = total, done

    def remeasure() -> None:
        assert measure is not None
        try:
            current.update(measure(progress))
            draw()
        except Exception as error:  # no caller waits for this thread, so the page shows the error
            when.value = f"Measuring failed: {error}"
        finally:
            again.disabled, bar.layout.display = False, "none"

    def show(address: str) -> None:
        attempts.value = f'<iframe src="{escape(address)}" style="width:100%;height:90px;border:0"></iframe>'

    def try_browser() -> None:
        try:
            lines = measure_page(show)
            before = current.get("lines")
            kept = [line for line in before if line.get("area") != AREA] if isinstance(before, list) else []
            current["lines"] = [*kept, *map(asdict, lines)]
            draw()
        except OSError as error:
            when.value = f"Trying the browser failed: {error}"
        finally:
            browser.disabled, attempts.value = False, ""

    def asked_for_browser(_: object) -> None:
        browser.disabled = True
        threading.Thread(target=try_browser, name="sandbox-report-page", daemon=True).start()

    def clicked(_: object) -> None:
        # Measuring takes seconds, so it runs in a thread and does not block the kernel.
        again.disabled, bar.value, bar.layout.display = True, 0, ""
        threading.Thread(target=remeasure, name="sandbox-report", daemon=True).start()

    choice.observe(draw, "value")
    again.on_click(clicked)
    browser.on_click(asked_for_browser)
    return ipywidgets.VBox([choice, ipywidgets.HBox([again, browser, bar, when]), attempts, page])


def _page(document: Mapping[str, object], choice: str) -> str:
    return defused(report_page(document, open_only=choice == _SHOW_OPEN))


def _when(document: Mapping[str, object]) -> str:
    at = document.get("measured_at")
    if not isinstance(at, int | float) or at <= 0:
        return ""
    return f"Measured on {time.strftime('%Y-%m-%d at %H:%M', time.localtime(at))}"
