"""What is believed of a debugger's messages. Pure functions; both sides of a link may send anything.

The debugger runs inside the session, so a reply can be forged. Only its size and shape matter: the page shows it as
text, and nothing in it is executed, opened or used as a path on the host.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from sandbox_kernel.errors import InvalidRequest, SessionError
from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.ground.wire import parse_json
from sandbox_kernel.session.worker.messages import clean

#: How a page computes the path of a cell; the same as in ``guest/python/cell_names.py``.
CELL_FOLDER, CELL_SUFFIX, HASH_SEED = "/sandbox-cells/", ".py", 0xC70F6907
#: The largest request of a page, and the largest message of a session, in bytes.
MAX_REQUEST, MAX_MESSAGE = 2 << 20, 4 << 20
#: The largest event: a page gets it without having asked.
MAX_EVENT = 64 << 10
#: The most threads that stand at one time.
MAX_THREADS = 1000
#: The requests of the Debug Adapter Protocol, and of Jupyter, that a session is asked.
COMMANDS = frozenset(
    [
        *("initialize", "attach", "disconnect", "configurationDone", "dumpCell", "source", "modules", "threads"),
        *("setBreakpoints", "setExceptionBreakpoints", "setFunctionBreakpoints", "stackTrace", "scopes", "variables"),
        *("continue", "next", "stepIn", "stepOut", "pause", "goto", "gotoTargets", "stepInTargets"),
        *("evaluate", "setExpression", "setVariable", "completions", "exceptionInfo"),
        *("inspectVariables", "richInspectVariables", "copyToGlobals"),
    ]
)
#: Requests after which a program that stood goes on.
GOING_ON = frozenset(["continue", "next", "stepIn", "stepOut", "goto", "disconnect"])
#: The events that a page gets.
EVENTS = frozenset(["initialized", "stopped", "continued", "thread", "breakpoint", "module", "process"])


@dataclass(frozen=True)
class DebugRequest:
    """A request of a page, checked."""

    command: str
    seq: int
    arguments: Mapping[str, object]

    def reply(self, *, success: bool, body: Mapping[str, object] | None = None, message: str = "") -> dict[str, object]:
        """Return the reply of the protocol to this request."""
        said: dict[str, object] = {"type": "response", "seq": self.seq, "request_seq": self.seq}
        said.update(command=self.command, success=success, body=dict(body or {}))
        return {**said, "message": message} if message else said


@dataclass(frozen=True)
class DebugReply:
    """The reply of a session."""

    number: int
    success: bool
    body: Mapping[str, object]
    message: str


@dataclass(frozen=True)
class DebugEvent:
    """An event of a session. ``stopped``: for an event of that name, the threads that stand now."""

    name: str
    body: Mapping[str, object]
    stopped: tuple[int, ...] = ()


def read_request(content: object) -> DebugRequest:
    """Check a page's request; raises ``InvalidRequest``."""
    if not isinstance(content, Mapping):
        raise InvalidRequest(f"a debug_request is an object, got {content!r:.60}")
    command, seq, arguments = content.get("command"), content.get("seq"), content.get("arguments")
    if not isinstance(command, str) or isinstance(seq, bool) or not isinstance(seq, int):
        raise InvalidRequest("a debug_request has a command and a number: {'command': 'initialize', 'seq': 1, …}")
    arguments = {} if arguments is None else arguments
    if not isinstance(arguments, Mapping) or len(json.dumps(dict(arguments), default=str)) > MAX_REQUEST:
        raise InvalidRequest(f"the arguments of {command!r:.60} are no object, or larger than {MAX_REQUEST >> 20} MB")
    return DebugRequest(command, seq, dict(arguments))


def read_message(raw: bytes) -> DebugReply | DebugEvent | None:
    """Check one message of a session; None for an event that no page gets. Raises ``SessionError``."""
    try:
        message = clean(parse_json(raw, parse_constant=lambda _: None))
    except (ValueError, RecursionError):
        raise SessionError("the debugger sent a message that is not JSON, too large or nested too deep") from None
    if not isinstance(message, dict):
        raise SessionError("the debugger sent a message that is not an object")
    body = message.get("body")
    body = body if isinstance(body, dict) else {}
    if message.get("type") == "event":
        name = message.get("event")
        if not isinstance(name, str) or name not in EVENTS or len(raw) > MAX_EVENT:
            return None
        return DebugEvent(name, body, _threads(body.pop("sandboxStopped", None), body.get("threadId")))
    number, said = message.get("request_seq"), message.get("message")
    if isinstance(number, bool) or not isinstance(number, int):
        raise SessionError("the debugger sent a reply without a number")
    return DebugReply(number, message.get("success") is True, body, said[:2000] if isinstance(said, str) else "")


def _threads(listed: object, one: object) -> tuple[int, ...]:
    found = listed if isinstance(listed, list) else [one]
    return tuple(number for number in found[:MAX_THREADS] if isinstance(number, int) and 0 <= number < 1 << 53)
