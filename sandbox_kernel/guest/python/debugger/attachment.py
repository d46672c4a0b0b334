"""The debugger of a session: none until a page attaches one, and none in forks of the session."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

    from ..cell_names import CellTexts
    from .debug_server import DebugServer


class Attachment:
    """Starts and ends the debugger. Costs a cell nothing while none is attached. Used by the main thread only."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._server: DebugServer | None = None
        self._texts: CellTexts | None = None

    def attach(self, fd: int | None) -> Dict[str, Any]:
        """Begin to serve a page on a socket; returns the answer to the host."""
        if fd is None:
            return {"ok": False, "reason": "the session got no socket"}
        self.detach()
        try:
            from ..cell_names import CellTexts
            from .debug_server import DebugServer

            if self._texts is None:
                self._texts = CellTexts()
                os.register_at_fork(after_in_child=self._forget)
            self._server = DebugServer(fd, self._shell, self._texts)
        except ImportError as error:
            os.close(fd)
            return {"ok": False, "reason": f"this session's Python has no debugpy ({error}); install it there"}
        return {"ok": True}

    def detach(self) -> None:
        """End the debugger, if there is one."""
        server, self._server = self._server, None
        if server is not None:
            server.finish()

    def settle(self) -> None:
        """End the debugger if its page has gone, and renew it if an interrupt has ended it; called between cells."""
        if self._server is None:
            return
        if self._server.over:
            self.detach()
        else:
            self._server.renew()

    def threads(self) -> int:
        """Return how many threads of this process are the debugger's own."""
        return 0 if self._server is None else self._server.threads()

    def _forget(self) -> None:
        """Called in each fork, of the session itself (a checkpoint) and of the user's code: it is not debugged."""
        server, self._server = self._server, None
        if server is not None:
            server.forget()
