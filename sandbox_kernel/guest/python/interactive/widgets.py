"""Widgets of a cell: their comms go to the host, and what the page sends back is handled like a small cell.

Installed when ``comm`` is imported, which ipywidgets and anywidget use to reach a page. Echoes carry the id of the
message that they answer, so that a page knows its own changes. ``Output`` widgets catch what is printed and displayed
inside them here, in the session: no page has to route it.
"""

from __future__ import annotations

import base64
import contextlib
import io
import os
import re
import sys

from .frame import LIBRARIES, MAKERS, as_json, frame, script
from .offline import as_data, icons, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Match, Set

COMM = "application/vnd.sandbox-kernel.comm+json"
VIEW = "application/vnd.jupyter.widget-view+json"
_STANDARD = "@jupyter-widgets/"
#: How webpack names a file beside its own.
_PICTURE = re.compile(r"\b\w\.p\+\"([0-9a-f]{8,64}\.(?:png|svg|woff2))\"")


class Comms:
    """Sends the comm messages of this session's widgets, and hands those of the page to them."""

    def __init__(self) -> None:
        #: Sends a bundle to the host; set when the worker exists.
        self.send: Callable[[Dict[str, Any]], Any] | None = None
        self.manager: Any = None
        self.modules: Set[str] = set()
        self._cause: str | None = None

    def install(self, module: Any) -> None:
        """Replace the functions of the package ``comm`` that make comms."""
        base = sys.modules["comm.base_comm"]
        self.manager = base.CommManager()
        comms = self

        class SessionComm(base.BaseComm):  # type: ignore[name-defined, misc]
            """A comm to the page."""

            def publish_msg(
                self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **keys: Any
            ) -> None:
                """See ``BaseComm``."""
                comms.note_modules(data or {})
                if comms.send is None:
                    return
                comms.send(
                    {
                        COMM: {
                            "msg_type": msg_type, "comm_id": self.comm_id, "target_name": keys.get("target_name"),
                            "data": data or {}, "metadata": metadata or {}, "parent_id": comms._cause,
                            "buffers": [base64.b64encode(bytes(part)).decode("ascii") for part in buffers or []],
                        }
                    }
                )  # fmt: skip

        module.create_comm = SessionComm
        module.get_comm_manager = lambda: comms.manager

    def note_modules(self, data: Dict[str, Any]) -> None:
        """Remember from which modules a widget's code comes."""
        state = data.get("state", {})
        self.modules.update(
            str(state[key]) for key in ("_model_module", "_view_module") if isinstance(state.get(key), str)
        )

    def receive(self, message: Dict[str, Any]) -> None:
        """Hand a message of the page to its widget."""
        if self.manager is None:
            return
        self._cause = message.get("msg_id")
        parts = [memoryview(base64.b64decode(part)) for part in message.get("buffers", [])]
        try:
            content = {"comm_id": message["comm_id"], "data": message.get("data", {})}
            self.manager.comm_msg(None, None, {"content": content, "metadata": {}, "buffers": parts})
        finally:
            self._cause = None


COMMS = Comms()


def widget(value: Any) -> Dict[str, Any]:
    """The view of a widget, drawn by the widget manager that ipywidgets brings for the classic notebook."""
    libraries = [LIBRARIES.named("ipywidgets"), *modules().values()]
    signs = icons()
    made = frame(script("startWidgets()"), [*libraries, signs] if signs else libraries, 120)
    made["widget"] = {"model_id": str(value["model_id"])}
    return made


def modules() -> Dict[str, str]:
    """Return the libraries of the widgets of this session that are none of ipywidgets', by the name of their module."""
    others = [name for name in sorted(COMMS.modules) if not name.startswith(_STANDARD) and _extension(name, "index.js")]
    return {name: LIBRARIES.named(f"widget {name}") for name in others}


def _extension(name: str, file: str) -> str:
    """Return the path of a widget's file for the classic notebook; empty when there is none."""
    if ".." in name:
        return ""
    for prefix in (sys.prefix, sys.base_prefix, "/usr/local", "/usr"):
        path = os.path.join(prefix, "share", "jupyter", "nbextensions", name, file)
        if os.path.isfile(path):
            return path
    return ""


def _manager(_: str) -> str:
    ours = os.path.join(os.path.dirname(os.path.abspath(__file__)), "widget_manager.js")
    path = _extension("jupyter-js-widgets", "extension.js")
    if not path:
        raise FileNotFoundError("widgetsnbextension, which ipywidgets needs, is not installed")
    return read(ours) + "\n;" + read(path)


def _module(name: str) -> str:
    """Return the file of a widget, with the pictures that it would load put in."""
    path = _extension(name, "index.js")

    def put_in(match: Match[str]) -> str:
        picture = os.path.join(os.path.dirname(path), match[1])
        return as_json(as_data(picture)) if os.path.isfile(picture) else match[0]

    return f"window.sandboxModule = {name!r};\n" + _PICTURE.sub(put_in, read(path))


MAKERS.update(ipywidgets=_manager, widget=_module)


class _Caught(io.StringIO):
    """Adds what is printed to an ``Output`` widget."""

    def __init__(self, output: Any, name: str) -> None:
        super().__init__()
        self._output, self._name = output, name

    def write(self, text: str) -> int:
        self._output._sandbox_add({"output_type": "stream", "name": self._name, "text": text})
        return len(text)


def catch_outputs(module: Any, screen: Any) -> None:
    """Make ``Output`` widgets catch what is shown inside them; ``screen`` is where displays go otherwise."""
    kind = module.Output

    def add(self: Any, output: Dict[str, Any]) -> None:
        before = list(self.outputs)
        if self.__dict__.pop("_sandbox_clear", False):
            before = []
        last = before[-1] if before else {}
        if output["output_type"] == "stream" == last.get("output_type") and last["name"] == output["name"]:
            before[-1] = {**last, "text": last["text"] + output["text"]}
        else:
            before.append(output)
        self.outputs = tuple(before)

    def clear(self: Any, wait: bool) -> None:
        if wait:
            self.__dict__["_sandbox_clear"] = True
        else:
            self.outputs = ()

    def enter(self: Any) -> Any:
        stack = contextlib.ExitStack()
        stack.enter_context(contextlib.redirect_stdout(_Caught(self, "stdout")))
        stack.enter_context(contextlib.redirect_stderr(_Caught(self, "stderr")))
        screen.catchers.append(self)
        self.__dict__.setdefault("_sandbox_stacks", []).append(stack)
        return self

    def fail(self: Any, name: str, error: Any, lines: List[str]) -> None:
        try:
            value = str(error)
        except Exception:
            value = ""
        self._sandbox_add({"output_type": "error", "ename": name, "evalue": value, "traceback": lines})

    def leave(self: Any, etype: Any, error: Any, trace: Any) -> Any:
        if etype is not None and issubclass(etype, Exception):
            screen.show_traceback((etype, error, trace))
        self.__dict__["_sandbox_stacks"].pop().close()
        screen.catchers.remove(self)
        if self.__dict__.pop("_sandbox_clear", False):
            self.outputs = ()
        return None if etype is None else issubclass(etype, Exception)

    kind._sandbox_add, kind._sandbox_clear_now, kind._sandbox_error = add, clear, fail
    kind.__enter__, kind.__exit__ = enter, leave
