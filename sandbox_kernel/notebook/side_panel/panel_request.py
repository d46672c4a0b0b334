"""Parses a ``sandbox_request`` of a page into what it asks for. Pure; bad input is an ``InvalidRequest``.

The message comes on the shell channel, between cells, from the page itself. No output of a sandbox can send one: frames
of outputs reach the kernel only through the gate of their widgets. Types and sizes are checked all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import quoted
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.parse_cell import LineCommand, parse_line
from sandbox_kernel.notebook.options.parse_options import parse_options

REQUEST, REPLY = "sandbox_request", "sandbox_reply"

MAX_PATHS = 10_000
_MAX_TEXT = 4096

Content = Mapping[str, object]


def action_of(content: object) -> tuple[str, Content]:
    """Return the name of the action and the whole content."""
    if not isinstance(content, Mapping) or not isinstance(content.get("action"), str):
        raise InvalidRequest(f"a {REQUEST} names an action, got {quoted(content)}")
    return str(content["action"]), content


def command_of(action: str, content: Content) -> LineCommand | None:
    """Return the line command that does the action, as ``%sandbox`` would; None for other actions."""
    make = _COMMANDS.get(action)
    return None if make is None else make(content)


def state_of(content: Content, name: str) -> int:
    """Return the number of a state of the tree."""
    value = content.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidRequest(f"{name} must be the number of a state, got {quoted(value)}")
    return value


def text_of(content: Content, name: str) -> str:
    """Return a text of the request, without spaces around it."""
    value = content.get(name, "")
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise InvalidRequest(f"{name} must be a text of at most {_MAX_TEXT} characters, got {quoted(value)}")
    return value.strip()


def texts_of(content: Content, name: str) -> tuple[str, ...]:
    """Return a list of texts of the request."""
    value = content.get(name, [])
    if not isinstance(value, list) or len(value) > MAX_PATHS or not all(isinstance(item, str) for item in value):
        raise InvalidRequest(f"{name} must be a list of at most {MAX_PATHS} texts, got {quoted(value)}")
    return tuple(value)


def _answered(content: Content) -> LineCommand:
    """Return the ``allow`` or ``never`` line of an offer's button."""
    command = parse_line(text_of(content, "line").removeprefix("%sandbox"))
    if command.name not in ("allow", "never"):
        raise InvalidRequest(f"an answer to an offer allows something or never, got {quoted(content.get('line'))}")
    return command


#: The fields of the dialog: each with its option, and the field of ``CellOptions`` that it sets.
_SINGLE = {"timeout": ("--timeout", "timeout_s"), "memory": ("--memory", "memory_mb"), "here": ("--here", "here")}
_MANY = {"domains": ("--allow-net", "allow_net"), "mounts": ("--mount", "mounts")}


def limits_of_dialog(content: Content, defaults: CellOptions) -> CellOptions:
    """Return the notebook's defaults with what the dialog changed; an empty field takes its option away."""
    words: list[str] = []
    for name, (option, _) in _SINGLE.items():
        words += [f"{option}={text}" for text in [text_of(content, name)] if text]
    for name, (option, _) in _MANY.items():
        words += [f"{option}={text.strip()}" for text in texts_of(content, name) if text.strip()]
    asked = parse_options(words)
    changed = [field for name, (_, field) in (_SINGLE | _MANY).items() if name in content]
    return replace(defaults, **{field: getattr(asked, field) for field in changed}).check_together()


_COMMANDS: Mapping[str, Callable[[Content], LineCommand]] = {
    "undo": lambda content: LineCommand(name="undo"),
    "redo": lambda content: LineCommand(name="redo"),
    "checkout": lambda content: LineCommand(name="checkout", target=str(state_of(content, "state"))),
    "name": lambda content: LineCommand(
        name="checkpoint",
        target=text_of(content, "name"),
        targets=(str(state_of(content, "state")),) if "state" in content else (),
    ),
    "apply": lambda content: LineCommand(
        name="apply", paths=texts_of(content, "paths"), shown=text_of(content, "shown") or None
    ),
    "discard": lambda content: LineCommand(name="discard", paths=texts_of(content, "paths")),
    "answer": _answered,
}
