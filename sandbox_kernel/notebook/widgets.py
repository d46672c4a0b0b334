"""Live parts of a page: the capability report to explore, and the panel of a cell that runs for long.

ipywidgets is imported by whoever calls in here first; a kernel that shows no widget does not pay for it. A widget lives
as long as its kernel: opened later, a saved notebook cannot draw it. So nothing that matters stands only in a widget,
and each is closed when the next of its kind is shown (ipywidgets keeps every widget for ever otherwise).
"""

# mypy: disallow-untyped-calls=False
# ipywidgets carries no types.

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from sandbox_kernel.limits import MIB
from sandbox_kernel.report_page import report_page
from sandbox_kernel.untrusted.tex import defused

VIEW = "application/vnd.jupyter.widget-view+json"
_SHOW_ALL, _SHOW_OPEN = "everything", "only what is not enforced"

#: Measures anew; is told whom to tell how far it is.
Measure = Callable[[Callable[[int, int], None]], Mapping[str, object]]

#: From this share of the limit on the bar warns.
_NEARLY_FULL = 0.85

_shown: dict[str, Any] = {}


def _replace(kind: str, widget: Any) -> Any:
    old = _shown.pop(kind, None)
    if old is not None:
        close_tree(old)
    _shown[kind] = widget
    return widget


def close_tree(widget: Any) -> None:
    """Close a widget and everything in it."""
    for child in getattr(widget, "children", ()):
        close_tree(child)
    widget.close()


def report_widget(document: Mapping[str, object], measure: Measure | None = None) -> Any:
    """The report to explore: filter its lines, and measure again. ``measure`` returns a new ``to_dict()``."""
    import ipywidgets

    current = dict(document)
    choice = ipywidgets.ToggleButtons(options=[_SHOW_ALL, _SHOW_OPEN], style={"button_width": "auto"})
    again = ipywidgets.Button(description="Run again", icon="refresh", disabled=measure is None)
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
        except Exception as error:  # nobody waits for this thread: what went wrong must be seen on the page
            when.value = f"It could not be measured: {error}"
        finally:
            again.disabled, bar.layout.display = False, "none"

    def clicked(_: object) -> None:
        # Measuring takes seconds: not on the thread that serves the page.
        again.disabled, bar.value, bar.layout.display = True, 0, ""
        threading.Thread(target=remeasure, name="sandbox-report", daemon=True).start()

    choice.observe(draw, "value")
    again.on_click(clicked)
    inside = ipywidgets.VBox([choice, ipywidgets.HBox([again, bar, when]), page])
    return _replace("report", ipywidgets.Accordion([inside], titles=("Explore the report",), selected_index=None))


def _page(document: Mapping[str, object], choice: str) -> str:
    return defused(report_page(document, open_only=choice == _SHOW_OPEN))


def _when(document: Mapping[str, object]) -> str:
    at = document.get("measured_at")
    if not isinstance(at, int | float) or at <= 0:
        return ""
    return f"Measured on {time.strftime('%Y-%m-%d at %H:%M', time.localtime(at))}"


class RunPanel:
    """Elapsed time and memory against their limits and a Stop button, for a cell that runs for long.

    ``stop`` may be called on another thread than the one that made the panel (JupyterLab sends clicks to a subshell):
    it must only set a flag.
    """

    def __init__(self, timeout_s: float, stop: Callable[[], None], *, blocking_kernel: bool = False) -> None:
        import ipywidgets

        self._timeout_s = timeout_s
        self._bar = ipywidgets.FloatProgress(value=0.0, min=0.0, max=timeout_s, layout={"width": "160px"})
        self._text = ipywidgets.Label()
        self._memory = ipywidgets.FloatProgress(
            value=0.0, min=0.0, max=1.0, layout={"width": "160px", "display": "none"}
        )
        self._memory_text = ipywidgets.Label()
        self._button = ipywidgets.Button(description="Stop", button_style="danger", layout={"width": "80px"})
        self._button.on_click(lambda _: self._stopped(stop))
        if blocking_kernel:
            # ipykernel 7.4 sends the click to the shell that made the button, which a blocking cell keeps busy until
            # its end; the subshell that the page chose is free.
            self._button.comm._reply_subshell_for = lambda data, default: default
        self.widget = ipywidgets.HBox([self._button, self._bar, self._text, self._memory, self._memory_text])
        self.update(0.0)

    def _stopped(self, stop: Callable[[], None]) -> None:
        self._button.disabled = True
        stop()

    def update(self, elapsed_s: float, memory: tuple[int, int] | None = None) -> None:
        """Draw the time, and the memory once it is known; called a few times a second while the cell runs."""
        self._bar.value = min(elapsed_s, self._timeout_s)
        self._text.value = f"{elapsed_s:.0f} s of {self._timeout_s:g} s"
        if memory is not None:
            used, limit = memory
            share = min(1.0, used / limit) if limit else 0.0
            self._memory.value, self._memory.layout.display = share, ""
            self._memory.bar_style = "" if share < _NEARLY_FULL else "warning"
            self._memory_text.value = f"{min(used, limit) / MIB:.0f} MB of {limit / MIB:.0f} MB"

    def close(self) -> None:
        """The cell has ended; the panel goes."""
        close_tree(self.widget)


def view(widget: Any, text: str) -> dict[str, object]:
    """The bundle that shows a widget, with a text that stays the same from run to run for everybody else."""
    bundle: Mapping[str, object] = widget._repr_mimebundle_()
    return {VIEW: bundle[VIEW], "text/plain": text}
