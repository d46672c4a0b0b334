"""The widgets on a page: the interactive capability report, and the panel of a cell that runs for long.

ipywidgets is imported by the first call; a kernel that shows no widget does not load it. A widget works only while its
kernel runs: a saved notebook that is opened later cannot draw it. So everything important is also shown outside of
widgets. A widget is closed when the next of its kind is shown, because ipywidgets never frees open widgets.
"""

# mypy: disallow-untyped-calls=False
# ipywidgets has no types.

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from sandbox_kernel.limits import MIB
from sandbox_kernel.notebook.render import ShowOutput
from sandbox_kernel.report.page import Measure, report_explorer

VIEW = "application/vnd.jupyter.widget-view+json"

#: The share of the limit from which the memory bar is drawn as a warning.
_NEARLY_FULL = 0.85

#: The report that is shown.
_reports: list[Any] = []


def close_tree(widget: Any) -> None:
    """Close a widget and everything in it."""
    for child in getattr(widget, "children", ()):
        close_tree(child)
    widget.close()


def report_widget(document: Mapping[str, object], measure: Measure | None = None) -> Any:
    """Return the interactive report, folded, as the static report is shown above it."""
    import ipywidgets

    while _reports:
        close_tree(_reports.pop())
    inside = report_explorer(document, measure)
    _reports.append(ipywidgets.Accordion([inside], titles=("Explore the report",), selected_index=None))
    return _reports[0]


class RunPanel:
    """Elapsed time and memory against their limits and a Stop button, for a cell that runs for long.

    The button calls ``stop``, possibly on another thread (JupyterLab sends clicks to a subshell), so it must only set a
    flag. ``show`` draws it. ``blocking_kernel``: the cell blocks the shell of the kernel, as a magic does.
    """

    def __init__(
        self,
        timeout_s: float,
        stop: Callable[[], None],
        show: Callable[[ShowOutput], None],
        *,
        blocking_kernel: bool = False,
    ) -> None:
        import ipywidgets

        self._show, self._id = show, uuid.uuid4().hex
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
            # ipykernel 7.4 sends the click to the shell that made the button, which is blocked until the cell ends. The
            # subshell that the page chose is free.
            self._button.comm._reply_subshell_for = lambda data, default: default
        self.widget = ipywidgets.HBox([self._button, self._bar, self._text, self._memory, self._memory_text])
        self.update(0.0)
        show(ShowOutput(view(self.widget, "running"), display_id=self._id))

    def _stopped(self, stop: Callable[[], None]) -> None:
        self._button.disabled = True
        stop()

    def update(self, elapsed_s: float, memory: tuple[int, int] | None = None) -> None:
        """Show the elapsed time, and the memory once it is known. Called a few times a second while the cell runs."""
        self._bar.value = min(elapsed_s, self._timeout_s)
        self._text.value = f"{elapsed_s:.0f} s of {self._timeout_s:g} s"
        if memory is not None:
            used, limit = memory
            share = min(1.0, used / limit) if limit else 0.0
            self._memory.value, self._memory.layout.display = share, ""
            self._memory.bar_style = "" if share < _NEARLY_FULL else "warning"
            self._memory_text.value = f"{min(used, limit) / MIB:.0f} MB of {limit / MIB:.0f} MB"

    def close(self) -> None:
        """Close the panel and empty its display: a closed widget cannot be drawn. Called when the cell has ended."""
        close_tree(self.widget)
        self._show(ShowOutput({"text/plain": ""}, display_id=self._id, update=True))


def view(widget: Any, text: str) -> dict[str, object]:
    """Return the MIME bundle that shows a widget; clients without widgets show ``text``, the same in every run."""
    bundle: Mapping[str, object] = widget._repr_mimebundle_()
    return {VIEW: bundle[VIEW], "text/plain": text}
