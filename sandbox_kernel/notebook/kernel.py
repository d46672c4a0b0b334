"""The Sandbox kernel: a Jupyter kernel that never runs user code in its own process.

Its first sandbox begins in a thread before the protocol is imported; most modules of a cell come while it starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.notebook.options.parse_cell import first_defaults
from sandbox_kernel.notebook.sandboxes import NotebookSandboxes, before_shutdown, kept_work

if TYPE_CHECKING:
    from sandbox_kernel.notebook.cell_requests import CellRequests
    from sandbox_kernel.notebook.execution import NotebookState
    from sandbox_kernel.notebook.protocol.channels import Channels
    from sandbox_kernel.notebook.protocol.request_loop import RequestLoop

#: How long a shutdown waits for running cells to end. After that the process exits, and its jails are killed with it.
_SHUTDOWN_S = 2.0

Content = Mapping[str, Any]


class RunningCells:
    """The cancel events of the running cells. Interrupts come as messages: SIGINT would end the whole async kernel."""

    def __init__(self) -> None:
        self._cells: set[asyncio.Event] = set()
        #: Set while no cell runs.
        self.idle = asyncio.Event()
        self.idle.set()

    @contextmanager
    def cell(self) -> Iterator[asyncio.Event]:
        """Enter while a cell runs. Yields an event that is set when the cell must stop."""
        cancel = asyncio.Event()
        self._cells.add(cancel)
        self.idle.clear()
        try:
            yield cancel
        finally:
            self._cells.discard(cancel)
            if not self._cells:
                self.idle.set()

    def interrupt(self) -> None:
        """Set the cancel event of every running cell."""
        for cancel in self._cells:
            cancel.set()


class SandboxKernel:
    """The kernel of one notebook. ``protocol/request_loop.py`` calls ``answer``, ``comm_message`` and ``cells``."""

    log = logging.getLogger("sandbox-kernel")
    loop: RequestLoop
    channels: Channels

    def __init__(self, connection_file: str = "") -> None:
        """``connection_file`` is a path; a restarted kernel has the same."""
        self.running = RunningCells()
        self._made = threading.Lock()
        self._ports: Content = {}
        self._known_processes: dict[int, Any] = {}
        self._connection_file = connection_file
        self.sandboxes, self.first_defaults = NotebookSandboxes(kept=kept_work(connection_file)), first_defaults()
        threading.Thread(target=self._warm_up, name="sandbox-warm-up", daemon=True).start()

    def connect(self, loop: RequestLoop, channels: Channels, log: logging.Logger, ports: Content) -> None:
        """Be told, before the first request, through what messages are sent."""
        import comm  # it imports traitlets, which the first sandbox need not wait for

        self.loop, self.channels, self.log, self._ports = loop, channels, log, ports
        comm.create_comm = _comm_class(loop)
        threading.Thread(target=lambda: self.cells, name="sandbox-imports", daemon=True).start()

    def _warm_up(self) -> None:
        """Open a first sandbox, so that the first cell does not wait for it."""
        try:
            self.sandboxes.warm(self.first_defaults)
        except SandboxError as error:
            self.log.warning("no sandbox could be made ready: %s", error)  # the first cell shows the same error

    @property
    def cells(self) -> CellRequests:
        """What answers requests about cells; the first to ask, on whatever thread, imports and makes it."""
        with self._made:
            return self._cells

    @cached_property
    def _cells(self) -> CellRequests:
        from sandbox_kernel.notebook.cell_requests import CellRequests  # many modules: see above

        return CellRequests(self)

    @property
    def state(self) -> NotebookState:
        """Defaults, sandboxes and variables of this notebook."""
        return self.cells.state

    # -- requests ----------------------------------------------------------------------------------------------------

    async def answer(self, kind: str, content: Content) -> Content | None:
        """Return the content of the reply; None for a kind of request that the kernel does not know."""
        find = self._answers.get(kind)
        found = None if find is None else find(content)
        return await found if isinstance(found, Awaitable) else found

    @cached_property
    def _answers(self) -> Mapping[str, Callable[[Content], Content | Awaitable[Content]]]:
        """What answers each type of request: gets the content and returns that of the reply."""
        return {
            "kernel_info_request": self._kernel_info,
            "connect_request": lambda content: {"status": "ok", **self._ports},
            "comm_info_request": self._comm_info,
            "interrupt_request": self._interrupt,
            "usage_request": lambda content: asyncio.to_thread(self._measure_usage),
            "shutdown_request": self._shutdown,
            "debug_request": lambda content: self.cells.debug(content),
            "sandbox_request": lambda content: self.cells.side_panel(content),
            "is_complete_request": lambda content: self.cells.is_complete(content["code"]),
            "history_request": lambda content: {"status": "ok", "history": self.cells.history.find(content)},
            "complete_request": lambda content: self.cells.complete(content["code"], content["cursor_pos"]),
            "inspect_request": lambda content: self.cells.inspect(
                content["code"], content["cursor_pos"], content.get("detail_level", 0)
            ),
        }

    def _kernel_info(self, content: Content) -> Content:
        """What the kernel is and can do. debugpy is not imported here, where nothing is debugged."""
        from sandbox_kernel.notebook.kernelspec import KERNEL_INFO

        debugger = find_spec("debugpy") is not None
        features = ["kernel subshells", "debugger"] if debugger else ["kernel subshells"]
        return {"status": "ok", **KERNEL_INFO, "supported_features": features, "debugger": debugger}

    def _measure_usage(self) -> dict[str, object]:
        """Return how much CPU and memory the kernel and its sandboxes take; CPU since the last time."""
        import psutil

        own = psutil.Process()
        everyone = [own, *own.children(recursive=True)]
        self._known_processes = {one.pid: self._known_processes.get(one.pid, one) for one in everyone}
        cpu, memory = 0.0, 0
        for process in self._known_processes.values():
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile, or is not ours to look into
                cpu += process.cpu_percent()
                memory += process.memory_full_info().pss
        found: dict[str, object] = {
            "hostname": socket.gethostname(),
            "pid": os.getpid(),
            "kernel_cpu": cpu,
            "kernel_memory": memory,
            "cpu_count": psutil.cpu_count(logical=True),
            "host_virtual_memory": dict(psutil.virtual_memory()._asdict()),
        }
        if host := psutil.cpu_percent():
            found["host_cpu_percent"] = host  # the first measurement has no beginning, and says 0
        return found

    # -- comms -------------------------------------------------------------------------------------------------------

    @cached_property
    def comm_manager(self) -> Any:
        """The comms that are open, and the targets that a page may open."""
        import comm

        return comm.get_comm_manager()

    def _comm_info(self, content: Content) -> Content:
        wanted = content.get("target_name")
        comms = list(self.comm_manager.comms.items())
        found = {name: {"target_name": one.target_name} for name, one in comms if wanted in (None, one.target_name)}
        return {"status": "ok", "comms": found}

    def comm_message(self, kind: str, message: Content) -> None:
        """Take a message of a page's widget."""
        _ = self.cells  # it registers the targets
        getattr(self.comm_manager, kind)(None, None, message)

    def is_quiet(self, comm_id: object) -> bool:
        """Whether no page waits for a status: widgets in frames get an answer of their own when a callback has run."""
        from sandbox_kernel.notebook.frames.gated_pages import TARGET

        found = self.comm_manager.comms.get(comm_id)
        return found is not None and found.target_name == TARGET

    # -- stopping ----------------------------------------------------------------------------------------------------

    def _interrupt(self, content: Content) -> Content:
        self.running.interrupt()
        if "_cells" in vars(self):
            self.state.comms.interrupt()
        return {"status": "ok"}

    def save_at_the_end(self) -> None:
        """Save the sessions for the last time, if autosave is on: the server is gone. Takes a few seconds at most."""
        if "_cells" in vars(self):
            self.state.autosave.finish()

    async def _shutdown(self, content: Content) -> dict[str, object]:
        restart = bool(content.get("restart"))
        self.running.interrupt()
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.running.idle.wait(), _SHUTDOWN_S)
        keep = partial(before_shutdown, self.sandboxes, self._connection_file, restart=restart)
        with contextlib.suppress(SandboxError, OSError):  # a kernel that is asked to end ends
            await loop.run_in_executor(None, keep)
            for note in () if restart else await loop.run_in_executor(None, self.sandboxes.not_applied):
                self.log.warning("%s", note)
        await loop.run_in_executor(None, self.state.close)
        return {"status": "ok", "restart": restart}


def _comm_class(loop: RequestLoop) -> Any:
    """Return what ``comm.create_comm`` makes, for ipywidgets and our frames: comms that send through the loop."""
    from comm.base_comm import BaseComm

    class PageComm(BaseComm):
        """A comm over the iopub channel."""

        def publish_msg(
            self, msg_type: str, data: Any = None, metadata: Any = None, buffers: Any = None, **keys: Any
        ) -> None:
            """Send one message to the pages, for the request that the running code belongs to."""
            content = {"data": data or {}, "comm_id": self.comm_id, **keys}
            parent = loop.present.message if loop.present is not None else None
            topic: Any = self.topic
            topic = topic.encode() if isinstance(topic, str) else topic
            loop.publish(msg_type, content, parent, metadata=metadata or {}, buffers=buffers, topic=topic)

    return PageComm
