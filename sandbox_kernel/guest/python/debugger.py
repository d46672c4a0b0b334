"""Serves the debugger of a page: a thread that takes requests of the host and asks the tracer.

Requests and replies are those of the Debug Adapter Protocol and those that Jupyter adds to it (``dumpCell``,
``inspectVariables``, …). A request is a generator that yields what it asks the tracer and is sent the replies, so the
thread never waits for one of them: while an expression is evaluated, other requests are answered.
"""

from __future__ import annotations

import ast
import contextlib
import json
import linecache
import os
import re
import select
import socket
import sys
import threading
from types import SimpleNamespace

from ..gate.wire import frame, frame_end
from ..session.worker_channel import as_json
from .cell_names import CELL_FOLDER, CellTexts, name_cells
from .interactive.frame import bundle, plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Generator, List, Tuple

    Message = Dict[str, Any]
    Steps = Generator[Message, Message, Message]


class Tracer:
    """pydevd, the tracer of debugpy, in this process. It speaks the Debug Adapter Protocol on a socket pair.

    debugpy itself would start an adapter and listen on a TCP port, which behind Landlock other programs could reach.
    ``__init__`` and ``end`` run on the main thread, between cells.
    """

    def __init__(self) -> None:
        """Begin to trace; raises ``ImportError`` when this Python has no debugpy."""
        hook = sys.breakpointhook
        # It would print that breakpoints in frozen modules of the standard library are not seen.
        told = os.environ.get("PYDEVD_DISABLE_FILE_VALIDATION")
        os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
        try:
            import debugpy
            from debugpy._vendored import force_pydevd  # noqa: F401
        finally:
            sys.breakpointhook = hook
            if told is None:
                del os.environ["PYDEVD_DISABLE_FILE_VALIDATION"]
        import pydevd
        import pydevd_file_utils
        from _pydevd_bundle._debug_adapter.pydevd_base_schema import BaseSchema

        # JupyterLab calls the main thread 1, also when it is not the first debugger of this process.
        BaseSchema.initialize_ids_translation()
        on_disk = pydevd_file_utils.os_path_exists
        pydevd_file_utils.exists = lambda path: path.startswith(CELL_FOLDER) or on_disk(path)
        self._pydevd: Any = pydevd
        self._hook = hook
        self.socket, theirs = socket.socketpair()
        for each in (self.socket, theirs):
            each.settimeout(None)  # the program may have set a default for all sockets
        pydevd.SetupHolder.setup = None
        connect = pydevd.start_client
        pydevd.start_client = lambda host, port: theirs
        try:
            pydevd.settrace(
                host="sandbox",
                port=1,
                suspend=False,
                wait_for_ready_to_run=False,
                patch_multiprocessing=False,
                notify_stdin=False,
                dont_trace_start_patterns=(os.path.dirname(os.path.abspath(debugpy.__file__)),),
                dont_trace_end_patterns=("debugpy_launcher.py",),
            )
        finally:
            pydevd.start_client = connect
        self._theirs = theirs
        self._debugger = pydevd.get_global_debugger()
        sys.breakpointhook = self._stop_here

    def _stop_here(self, *args: Any, **named: Any) -> None:
        """``breakpoint()`` while a debugger is attached: stop in it."""
        frame = sys._getframe(1)
        self._pydevd.settrace(
            suspend=True, trace_only_current_thread=True, patch_multiprocessing=False, stop_at_frame=frame
        )

    def threads(self) -> int:
        """Return how many threads of the tracer run."""
        return sum(1 for thread in self._debugger.created_pydb_daemon_threads if thread.is_alive())

    def traces(self) -> bool:
        """Whether the main thread is traced; from Python 3.12 on nothing can take that away."""
        return sys.version_info >= (3, 12) or sys.gettrace() is not None

    def renew(self) -> None:
        """Trace the main thread again, which stands nowhere now."""
        from _pydevd_bundle.pydevd_additional_thread_info import set_additional_thread_info

        info = set_additional_thread_info(threading.main_thread())
        info.pydev_state, info.pydev_step_cmd, info.pydev_step_stop, info.is_tracing = 1, -1, None, 0
        self._pydevd.settrace(suspend=False, patch_multiprocessing=False)

    def end(self, *, forked: bool) -> None:
        """End the tracing, and the tracer's threads, of which a fork has none."""
        sys.breakpointhook = self._hook
        if forked:
            from _pydevd_bundle.pydevd_constants import set_global_debugger

            self._debugger.pydb_disposed = True
            self._debugger.created_pydb_daemon_threads.clear()
            set_global_debugger(None)
        self._pydevd.stoptrace()
        for each in (self.socket, self._theirs):
            each.close()


# Looks at values for a debugger: the variables between cells, and one value in the form in which a cell shows it.


class Explorer:
    """The variables of a session as they are now, in the form that a stopped frame has."""

    def __init__(self, space: Dict[str, Any]) -> None:
        from _pydevd_bundle import pydevd_frame_utils
        from _pydevd_bundle.pydevd_api import PyDevdAPI
        from _pydevd_bundle.pydevd_suspended_frames import SuspendedFramesManager, _FramesTracker

        code = SimpleNamespace(co_filename="<module>", co_name="<module>")
        self._frame = SimpleNamespace(f_code=code, f_globals=space, f_locals=space, f_back=None)
        self._frames = SuspendedFramesManager()
        settings = SimpleNamespace(variable_presentation=PyDevdAPI.VariablePresentation())
        self._tracker = _FramesTracker(self._frames, settings)
        self._tracker.track("thread1", pydevd_frame_utils.create_frames_list_from_frame(self._frame))

    def children(self, reference: int) -> List[Dict[str, Any]]:
        """Return the parts of a value that was listed before; 0 for the variables themselves."""
        found = self._frames.get_variable(reference or id(self._frame))
        return [item.get_var_data() for item in found.get_children_variables()]


def rich(value: Any) -> Dict[str, Any]:
    """Return the MIME bundle of a value and its metadata, as JSON can hold them."""
    from IPython.core.getipython import get_ipython

    data, metadata = get_ipython().display_formatter.format(value)  # type: ignore[union-attr]
    return {"data": bundle(data), "metadata": plain(metadata)}


#: Names that a page does not list: those that IPython and Python themselves put among the variables.
_HIDDEN = re.compile(
    r"__(?:name|doc|package|loader|spec|annotations|builtins?|display)__|get_ipython|debugpy|exit|quit|In|Out|open"
    r"|_oh|_dh|_{1,3}|_\d.*|_i.*"
)
#: Requests that would end the session or start another one.
_REFUSED = frozenset(["launch", "terminate", "restart", "pydevdAuthorize", "setDebuggerProperty"])


class DebugServer:
    """One attached debugger. Made on the main thread between cells; ``finish`` is called there too."""

    def __init__(self, fd: int, shell: Any, texts: CellTexts) -> None:
        self._shell, self._texts = shell, texts
        self._host = HostStream(socket.socket(fileno=fd))
        #: Whether the page has gone; the main thread calls ``finish`` then.
        self.over = False
        self._number = 0
        self._asked: Dict[Any, Callable[[Message], None]] = {}
        self._stopped: set[Any] = set()
        #: The thread that a breakpoint or a step has stopped, and the main thread, as the tracer numbers them.
        self._standing: Any = None
        self._main: Any = 1
        self._explorer: Any = None
        self._thread = threading.Thread(target=self._serve, name="sandbox-debugger", daemon=True)
        # The tracer leaves such threads alone, and does not list them.
        self._thread.is_pydev_daemon_thread = True  # type: ignore[attr-defined]
        self._thread.pydev_do_not_trace = True  # type: ignore[attr-defined]
        self._tracer = Tracer()
        self._dap = TracerStream(self._tracer.socket)
        self._unname = name_cells(shell, texts)
        self._thread.start()

    def threads(self) -> int:
        """Return how many threads of this process belong to the debugger."""
        return self._tracer.threads() + self._thread.is_alive()

    def finish(self, *, forked: bool) -> None:
        """End the debugger: its page has gone, or this is a fork, to which its threads were not copied."""
        self._unname()
        self._tracer.end(forked=forked)
        if not forked:
            self._thread.join(1)
        self._host.socket.close()

    def renew(self) -> None:
        """Set the tracer right between cells, where the main thread cannot stand at a breakpoint.

        An interrupt raises an exception in the tracer, where the cell stands, and Python then removes the tracer.
        """
        stood = self._standing is not None and self._standing == self._main
        if stood or not self._tracer.traces():
            self._tracer.renew()
        if stood:
            body = {"threadId": 1, "allThreadsContinued": True}
            self._event({"type": "event", "event": "continued", "body": body})

    # -- the thread --------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while True:
                ready, _, _ = select.select([self._host.socket, self._dap.socket], [], [])
                for stream in (self._dap, self._host):
                    messages = stream.read() if stream.socket in ready else ()
                    if messages is None:
                        return
                    for message in messages:
                        self._hear(message)
        except (OSError, ValueError):
            return
        finally:
            self.over = True
            # Whatever is stopped goes on; without a page nobody could let it.
            with contextlib.suppress(OSError):
                self._dap.send({"type": "request", "seq": 0, "command": "disconnect", "arguments": {}})

    def _hear(self, message: Message) -> None:
        """Take an event or a response of the tracer, or a request of the host."""
        if message.get("type") == "event":
            self._event(message)
        elif message.get("type") == "response":
            then = self._asked.pop(message.get("request_seq"), None)
            if then is not None:
                then(message)
        else:
            self._begin(message)

    def _begin(self, request: Message) -> None:
        """Carry out a request, from one question to the tracer to the next."""
        command = str(request.get("command"))
        if command in _REFUSED:
            why = f"{command} is not possible in a sandbox: the kernel starts and ends it"
            self._reply(request, {"success": False, "message": why})
            return
        steps = getattr(self, f"_on_{command}", self._forward)(request)

        def go_on(answer: Message | None) -> None:
            try:
                question = next(steps) if answer is None else steps.send(answer)
            except StopIteration as end:
                self._reply(request, end.value)
            except Exception as error:
                self._reply(request, {"success": False, "message": f"{type(error).__name__}: {error}"[:2000]})
            else:
                self._ask(question, go_on)

        go_on(None)

    def _ask(self, question: Message, then: Callable[[Message], None]) -> None:
        self._number += 1
        self._asked[self._number] = then
        self._dap.send({**question, "type": "request", "seq": self._number})

    def _reply(self, request: Message, answer: Message) -> None:
        said = {"success": True, "body": {}, **answer}
        said.update(type="response", request_seq=request.get("seq"), command=request.get("command"))
        if not self._host.send(said):
            self._host.send({**said, "success": False, "body": {}, "message": "the answer is too large to be shown"})

    def _event(self, event: Message) -> None:
        name, body = event.get("event"), event.get("body") or {}
        if name == "continued":
            self._standing = None
            if body.get("allThreadsContinued"):
                self._stopped.clear()
            self._stopped.discard(body.get("threadId"))
        if name == "stopped":
            self._standing = body.get("threadId")
            self._stopped.add(self._standing)
            if body.get("allThreadsStopped"):
                self._ask({"command": "threads"}, lambda reply: self._all_stopped(reply, event))
                return
        self._host.send(event)

    def _all_stopped(self, reply: Message, event: Message) -> None:
        """Tell the page that all threads stand, now that they are known."""
        threads = (reply.get("body") or {}).get("threads") or []
        self._stopped.update(thread["id"] for thread in threads)
        self._main = next((thread["id"] for thread in threads if thread["name"] == "MainThread"), self._main)
        self._host.send({**event, "body": {**event["body"], "sandboxStopped": sorted(self._stopped)}})

    # -- the requests ------------------------------------------------------------------------------------------------

    def _forward(self, request: Message) -> Steps:
        return (yield {"command": request["command"], "arguments": request.get("arguments") or {}})

    def _on_initialize(self, request: Message) -> Steps:
        answer = yield from self._forward(request)
        yield {
            "command": "setDebuggerProperty",
            "arguments": {
                "multiThreadsSingleNotification": True,
                "skipSuspendOnBreakpointException": ["BaseException"],
                "skipPrintBreakpointException": ["NameError"],
                "ideOS": "UNIX",
            },
        }
        return answer

    def _on_attach(self, request: Message) -> Steps:
        ours = sys.modules[__name__].__file__ or ""
        libraries = (getattr(sys.modules.get(name), "__file__", None) for name in ("IPython", "traitlets"))
        folders = [ours.rpartition("/python/")[0], *(file.rpartition("/")[0] for file in libraries if file)]
        arguments = {
            **(request.get("arguments") or {}),
            "justMyCode": False,
            "debugOptions": ["DebugStdLib"],
            "subProcess": False,
            "rules": [{"path": folder, "include": False} for folder in folders],
        }
        answer = yield {"command": "attach", "arguments": arguments}
        yield {"command": "configurationDone"}
        return answer

    def _on_configurationDone(self, request: Message) -> Steps:  # noqa: N802 - the protocol's name
        yield from ()
        return {}

    def _on_disconnect(self, request: Message) -> Steps:
        return (yield {"command": "disconnect", "arguments": {"terminateDebuggee": False}})

    def _on_dumpCell(self, request: Message) -> Steps:  # noqa: N802
        yield from ()
        code, program = (str(request["arguments"][key]) for key in ("code", "program"))
        return {"body": {"sourcePath": self._texts.dump(code, program)}}

    def _on_stackTrace(self, request: Message) -> Steps:  # noqa: N802
        """Leave out the frames below the cell: they are ours."""
        answer = yield from self._forward(request)
        frames = (answer.get("body") or {}).get("stackFrames") or []
        of_cells = [n for n, one in enumerate(frames) if str(one.get("source", {}).get("path")).startswith(CELL_FOLDER)]
        if of_cells:
            frames = frames[: of_cells[-1] + 1]
            answer = {**answer, "body": {"stackFrames": frames, "totalFrames": len(frames)}}
        return answer

    def _on_source(self, request: Message) -> Steps:
        yield from ()
        path = str(request["arguments"]["source"]["path"])
        text = self._texts.texts.get(path) or ("".join(linecache.getlines(path)) if path.endswith(".py") else "")
        return {"body": {"content": text[: 1 << 20]}} if text else {"success": False, "message": "source unavailable"}

    def _on_variables(self, request: Message) -> Steps:
        if not self._stopped:
            return self._listed(self._explored(request["arguments"]["variablesReference"]))
        answer = yield from self._forward(request)
        if not answer.get("success"):
            return answer
        return {**answer, **self._listed(answer["body"]["variables"])}

    def _on_inspectVariables(self, request: Message) -> Steps:  # noqa: N802
        yield from ()
        self._explorer = Explorer(self._shell.user_ns)
        return self._listed(self._explored(0))

    def _explored(self, reference: int) -> List[Message]:
        return [] if self._explorer is None else self._explorer.children(reference)

    @staticmethod
    def _listed(variables: List[Message]) -> Message:
        return {"body": {"variables": [one for one in variables if not _HIDDEN.fullmatch(one["name"])]}}

    def _on_richInspectVariables(self, request: Message) -> Steps:  # noqa: N802
        arguments = request["arguments"]
        name = arguments["variableName"]
        nothing: Message = {"data": {}, "metadata": {}}
        if not str.isidentifier(name):
            return {"success": name in ("special variables", "function variables"), "body": nothing}
        if not self._stopped:
            found = self._shell.user_expressions({name: name})[name]
            if found.get("status") != "ok":
                return {"success": False, "body": nothing}
            return {"body": {"data": bundle(found["data"]), "metadata": plain(found.get("metadata") or {})}}
        code = f"__import__('json').dumps(__import__('{__name__}', fromlist=['']).rich({name}))"
        asked = {"expression": code, "frameId": arguments.get("frameId"), "context": "clipboard"}
        answer = yield {"command": "evaluate", "arguments": asked}
        if not answer.get("success"):
            return {"success": False, "message": answer.get("message", ""), "body": nothing}
        # The JSON that ``rich`` made in the stopped frame; the tracer may quote it.
        text = answer["body"]["result"]
        return {"body": _loads(ast.literal_eval(text) if text[:1] in "'\"" else text)}

    def _on_copyToGlobals(self, request: Message) -> Steps:  # noqa: N802
        arguments = request["arguments"]
        target, source = arguments["dstVariableName"], arguments["srcVariableName"]
        if not str.isidentifier(target) or not str.isidentifier(source):
            return {"success": False, "message": "dstVariableName and srcVariableName must be valid identifiers"}
        asked = {"expression": f"globals()['{target}']", "value": source, "frameId": arguments["srcFrameId"]}
        return (yield {"command": "setExpression", "arguments": asked})

    def _on_modules(self, request: Message) -> Steps:
        yield from ()
        arguments = request.get("arguments") or {}
        modules = list(sys.modules.copy().values())
        start = int(arguments.get("startModule") or 0)
        count = int(arguments.get("moduleCount") or len(modules))
        found = []
        for number, module in list(enumerate(modules))[start : start + count]:
            path = getattr(getattr(module, "__spec__", None), "origin", None)
            if isinstance(path, str) and path.endswith(".py"):
                found.append({"id": number, "name": module.__name__, "path": path})
        return {"body": {"modules": found, "totalModules": len(modules)}}


# Two framings of JSON messages on sockets: that of the host's channel, and that of the Debug Adapter Protocol.

#: References taken before the first cell, because a cell may replace these functions.
_loads = json.loads
#: The largest message in bytes. The host accepts no larger one; of the tracer's a larger one is replaced by an error.
MAX_MESSAGE = 4 << 20


class HostStream:
    """Messages to and from the host: four bytes of length, then JSON."""

    def __init__(self, own: socket.socket) -> None:
        self.socket = own
        self.socket.settimeout(None)  # the program may have set a default for all sockets
        self._buffer = bytearray()
        self._lock = threading.Lock()

    def send(self, message: Message) -> bool:
        """Send one message; False when it is too large."""
        data = as_json(message)
        if len(data) > MAX_MESSAGE:
            return False
        with self._lock:
            self.socket.sendall(self.framed(data))
        return True

    def framed(self, data: bytes) -> bytes:
        """Return a message as it is sent."""
        return frame(data)

    def find(self, buffer: bytearray) -> Tuple[int, int]:
        """Return where the first message begins and ends; the end is 0 when it is not whole."""
        return 4, frame_end(buffer)

    def read(self) -> List[Message] | None:
        """Return the messages that are complete after one read; None at the end of the stream."""
        part = self.socket.recv(1 << 18)
        if not part:
            return None
        self._buffer += part
        messages: List[Message] = []
        while True:
            start, end = self.find(self._buffer)
            if not end:
                return messages
            messages.append(_loads(bytes(self._buffer[start:end])))
            del self._buffer[:end]


class TracerStream(HostStream):
    """Messages to and from pydevd: HTTP-like headers, then JSON."""

    def framed(self, data: bytes) -> bytes:
        """See ``HostStream``."""
        return b"Content-Length: %d\r\n\r\n%s" % (len(data), data)

    def find(self, buffer: bytearray) -> Tuple[int, int]:
        """See ``HostStream``."""
        start = buffer.find(b"\r\n\r\n") + 4
        if start < 4:
            return 0, 0
        end = start + int(bytes(buffer[:start]).lower().partition(b"content-length:")[2].split()[0])
        return start, end if end <= len(buffer) else 0
