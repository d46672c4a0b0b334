"""Starts a kernel as Jupyter does: ipykernel's options, the connection file, sockets, the loop, the end."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from jupyter_client.connect import ConnectionFileMixin
from jupyter_client.session import Session, session_aliases, session_flags
from jupyter_core.paths import jupyter_runtime_dir
from traitlets.config.application import Application

from sandbox_kernel import __version__
from sandbox_kernel.notebook.protocol.channels import Channels
from sandbox_kernel.notebook.protocol.request_loop import RequestLoop

_PORTS = ("shell", "iopub", "stdin", "hb", "control")
_PARENT_LOOK_S = 1.0


class KernelApp(Application, ConnectionFileMixin):
    """One kernel process; ``serve`` ends it when a client has asked for that."""

    name = "sandbox-kernel"
    version = __version__
    description = "The Sandbox kernel. Jupyter starts it with -f and the path of a connection file."
    #: A kernel makes no clients; the name of one would import all of ``jupyter_client``.
    blocking_class = None
    classes = [Session]  # noqa: RUF012 - traitlets reads these three
    flags = {**Application.flags, **session_flags}  # noqa: RUF012
    aliases = {  # noqa: RUF012
        **Application.aliases,
        **session_aliases,
        "f": "KernelApp.connection_file",
        "ip": "KernelApp.ip",
        "transport": "KernelApp.transport",
        **{name: f"KernelApp.{name}_port" for name in _PORTS},
    }

    def serve(self, kernel: Any, words: Sequence[str]) -> NoReturn:
        """Serve a ``SandboxKernel`` with the options of a command line."""
        self.initialize([word.replace("--IPKernelApp.", "--KernelApp.", 1) for word in words])
        self._read_connection_file()
        # An interrupt is a message here; in a terminal Ctrl-C goes to every process of the group.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        asyncio.run(self._serve(kernel))
        # Sandboxes have ended, messages are out. Python would take its modules apart now, and a restart waits for that.
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    async def _serve(self, kernel: Any) -> None:
        channels = Channels(self)
        self._write_ports()
        self._watch_parent(kernel)
        loop = RequestLoop(channels, kernel)
        ports = {f"{name}_port": getattr(self, f"{name}_port") for name in _PORTS}
        kernel.connect(loop, channels, self.log, ports)
        try:
            await loop.run()
        finally:
            channels.close()

    def _read_connection_file(self) -> None:
        path = self.connection_file or f"kernel-{os.getpid()}.json"
        if os.path.basename(path) == path and not os.path.exists(path):
            path = os.path.join(jupyter_runtime_dir(), path)
        self.connection_file = path
        if os.path.exists(path):
            try:
                self.load_connection_file()
            except Exception as error:
                self.log.error("the connection file %s cannot be read: %s", path, error)
                sys.exit(1)
        else:
            os.makedirs(os.path.dirname(os.path.abspath(path)), mode=0o700, exist_ok=True)
            atexit.register(self.cleanup_connection_file)

    def _write_ports(self) -> None:
        if not os.path.exists(self.connection_file) or self._random_port_names:
            self._connection_file_written = False
            self.write_connection_file()

    def _watch_parent(self, kernel: Any) -> None:
        """End this process when the server that started it has ended (``JPY_PARENT_PID``); autosave saves before."""
        said = int(os.environ.get("JPY_PARENT_PID") or 0)
        if said <= 1:
            return
        parent = os.getppid() if os.getppid() == said else 1
        loop = asyncio.get_running_loop()

        def look() -> None:
            if (os.getppid() != parent) if parent > 1 else (os.getppid() == 1):
                self.log.warning("the process that started this kernel has ended, so it ends too")
                try:
                    kernel.save_at_the_end()
                finally:
                    os._exit(1)
            loop.call_later(_PARENT_LOOK_S, look)

        look()
