"""Sends what a Python cell shows (values, ``display()``, figures) to the host as messages.

IPython makes the MIME bundles, and ``interactive/`` what JSON can hold of them. A bundle larger than a frame is
replaced by a sentence that says so.
"""

from __future__ import annotations

import sys

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher

from .interactive.convert import converted, in_output
from .interactive.frame import LIBRARIES, bundle, plain
from .interactive.widgets import COMMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

    Send = Callable[..., bool]


class Screen:
    """Sends displays to the host; drops them until the worker exists."""

    def __init__(self) -> None:
        self.send: Send | None = None
        #: ``Output`` widgets that catch displays, innermost last.
        self.catchers: List[Any] = []
        #: Whether a front end runs the cell, which has a place for pages of documentation.
        self.has_pager: Callable[[], bool] = lambda: False

    def show(
        self,
        kind: str,
        data: Dict[str, Any],
        metadata: Dict[str, Any],
        display_id: str | None = None,
        waits: bool | None = None,
    ) -> None:
        """Send one display, after everything that was printed before it; ``waits``: see ``Worker.show``."""
        if self.send is None:
            return
        if self.catchers:
            self.catchers[-1]._sandbox_add(in_output(data))
            return
        sys.stdout.flush()
        sys.stderr.flush()
        message = {
            "op": "display", "kind": kind, "data": bundle(converted(data)),
            "metadata": plain(metadata) if isinstance(metadata, dict) else {},
            # The host accepts no control characters and no long names.
            "display_id": display_id if display_id is None else (ascii(display_id)[1:-1] or "-")[-200:],
        }  # fmt: skip
        if not self.send(message, waits=waits):
            size = sum(len(str(value)) for value in message["data"].values())
            sentence = f"<output of {size} characters is too large to be shown>"
            self.send({**message, "data": {"text/plain": sentence}, "metadata": {}})

    def show_error(self, name: str, error: BaseException, traceback: List[str]) -> None:
        """Show an error after which the cell goes on."""
        if self.catchers:
            self.catchers[-1]._sandbox_error(name, error, traceback)
        else:
            sys.stderr.write("\n".join(traceback) + "\n")
            sys.stderr.flush()

    def show_traceback(self, raised: Any) -> None:
        """Show the traceback of what an ``Output`` widget caught."""
        __import__("IPython").get_ipython().showtraceback(raised, tb_offset=0)

    def beside(self, data: Dict[str, Any]) -> bool:
        """Send what is not shown by itself: a library that later frames use, or a message of a widget."""
        message = {"op": "display", "kind": "display", "data": data, "metadata": {}, "display_id": None}
        return self.send is not None and self.send(message, waits=False)

    def clear(self, wait: bool) -> None:
        """Clear the cell's output, now or, with ``wait``, when the next output comes."""
        if self.catchers:
            self.catchers[-1]._sandbox_clear_now(wait)
        elif self.send is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            self.send({"op": "clear", "wait": bool(wait)})


SCREEN = Screen()
LIBRARIES.send = SCREEN.beside
COMMS.send = SCREEN.beside


class WorkerPublisher(DisplayPublisher):
    """``display()`` and ``update_display()``."""

    def publish(
        self,
        data: Dict[str, Any],
        metadata: Dict[str, Any] | None = None,
        *args: Any,
        transient: Dict[str, Any] | None = None,
        update: bool = False,
        **kwargs: Any,
    ) -> None:
        """See ``DisplayPublisher``."""
        name = (transient or {}).get("display_id")
        SCREEN.show("update" if update else "display", data, metadata or {}, None if name is None else str(name))

    def clear_output(self, wait: bool = False) -> None:
        """See ``DisplayPublisher``."""
        SCREEN.clear(wait)


#: Modules whose callbacks after a cell print nothing. IPython's own is there always, so it must not cost a wait.
_SILENT = ("IPython.core.", "matplotlib_inline.")


def prints_later(shell: Any) -> bool:
    """Whether something may be printed after the value of a cell: by its next expression, or by a callback."""
    if shell.ast_node_interactivity == "all":
        return True
    after = [*shell.events.callbacks["post_execute"], *shell.events.callbacks["post_run_cell"]]
    return any(not str(getattr(callback, "__module__", "")).startswith(_SILENT) for callback in after)


class WorkerDisplayHook(DisplayHook):
    """Shows the value of a cell's last expression."""

    def write_output_prompt(self) -> None:
        """Write nothing: the notebook shows its own prompt."""

    def write_format_data(self, format_dict: Dict[str, Any], md_dict: Dict[str, Any] | None = None) -> None:
        """See ``DisplayHook``."""
        SCREEN.show("result", format_dict, md_dict or {}, waits=prints_later(self.shell))

    def finish_displayhook(self) -> None:
        """Write nothing to a stream; the object has been shown."""
        self._is_active = False
