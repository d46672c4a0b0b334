"""A jail that was forked from a template: the same walls, without starting bubblewrap and an interpreter."""

from __future__ import annotations

import os
import socket
import struct

from sandbox_kernel.jail.core.walls import Walls
from sandbox_kernel.jail.kinds.bubblewrap_jail import NamespaceJail
from sandbox_kernel.jail.kinds.template import Template

_CREDENTIALS = struct.Struct("3i")


class TemplateJail(NamespaceJail):
    """Forked by a template. Its pid is taken from the credentials that the kernel attaches to its first message."""

    def __init__(self, walls: Walls, template: Template) -> None:
        super().__init__(walls)
        self.uid = template.uid
        self._template = template
        # The kernel then adds the sender's pid, as the host sees it, to each message.
        self.control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        template.hold()
        self._holds = True
        try:
            self._launch()
        except BaseException:
            self._release()
            raise

    def _begin(self, stdin: int, stdout: int, stderr: int) -> None:
        """See ``Jail``."""
        ends = (self._control_in.fileno(), self._channel_in.fileno())
        self._template.make(self.walls, (*ends, stdin, stdout, stderr))

    def _find_init(self, deadline: float) -> int:
        """See ``Jail``."""
        self._wait_readable(self.control.fileno(), deadline)
        data, ancillary, _, _ = self.control.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
        # Descriptors that come later need the space that the credentials would take.
        self.control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
        for level, kind, raw in ancillary:
            if data and (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                pid, uid, _ = _CREDENTIALS.unpack(raw)
                if pid > 0 and uid == (self.uid if self.uid is not None else os.getuid()):
                    return int(pid)
        raise EOFError("the template forked no sandbox")

    def _read_ready(self, deadline: float) -> None:
        """See ``Jail``. The descriptor of the layer comes first, where the program works on a folder of the host."""
        if self.walls.here is not None:
            self._wait_readable(self.control.fileno(), deadline)
            _, descriptors, _, _ = socket.recv_fds(self.control, 1, 2)
            if not descriptors:
                raise EOFError("the layer over the folder could not be mounted")
            for fd in descriptors:
                os.set_inheritable(fd, False)
            self.layer_fd = descriptors[0]
            self.settings_fd = descriptors[1] if len(descriptors) > 1 else -1
        super()._read_ready(deadline)

    def _clear_away(self) -> None:
        """See ``Jail``."""
        super()._clear_away()
        self._release()

    def _release(self) -> None:
        if self._holds:
            self._holds = False
            self._template.release()
