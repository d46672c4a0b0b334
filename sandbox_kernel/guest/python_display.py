"""What a Python cell shows: values, ``display()`` and figures, as messages to the host.

IPython has made the MIME bundles; here bytes become base64 (as Jupyter's messages have it), what JSON cannot carry
becomes text, and what is larger than a frame is replaced by a sentence that says so.
"""

from __future__ import annotations

import base64
import json
import sys

from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

    Send = Callable[[Dict[str, Any]], bool]


def plain(value: Any) -> Any:
    """A value that JSON can carry."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, str):
        return value
    try:
        return json.loads(json.dumps(value, default=str))
    except (TypeError, ValueError, RecursionError):
        return str(value)


def bundle(data: Dict[str, Any]) -> Dict[str, Any]:
    """A MIME bundle that JSON can carry."""
    return {str(mime): plain(value) for mime, value in data.items()}


class Screen:
    """Where displays go; until the worker exists they go nowhere."""

    def __init__(self) -> None:
        self.send: Send | None = None

    def show(self, kind: str, data: Dict[str, Any], metadata: Dict[str, Any], display_id: str | None = None) -> None:
        """One display, after everything that was printed before it."""
        if self.send is None:
            return
        sys.stdout.flush()
        sys.stderr.flush()
        message = {
            "op": "display", "kind": kind, "data": bundle(data), "metadata": plain(metadata or {}),
            "display_id": display_id,
        }  # fmt: skip
        if not self.send(message):
            size = sum(len(str(value)) for value in message["data"].values())
            sentence = f"<output of {size} characters is too large to be shown>"
            self.send({**message, "data": {"text/plain": sentence}, "metadata": {}})

    def clear(self, wait: bool) -> None:
        """Take away what this cell has shown, now or when the next output comes."""
        if self.send is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            self.send({"op": "clear", "wait": bool(wait)})


SCREEN = Screen()


class Publisher(DisplayPublisher):
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


class Hook(DisplayHook):
    """The value of a cell's last expression."""

    def write_output_prompt(self) -> None:
        """The notebook writes its own."""

    def write_format_data(self, format_dict: Dict[str, Any], md_dict: Dict[str, Any] | None = None) -> None:
        """See ``DisplayHook``."""
        SCREEN.show("result", format_dict, md_dict or {})

    def finish_displayhook(self) -> None:
        """Nothing was written to a stream."""
