"""Messages from the gate while a job runs: it began, a step ended, files to keep, a wall that could not be built."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.jail.core.gate_messages import Step, StepExit, broken, step_exit
from sandbox_kernel.jail.core.handed_over import MAX_KEPT, MAX_KEPT_BYTES, read_kept, receive_with_files
from sandbox_kernel.jail.core.jail import Jail


class GateReplies:
    """The state of a job, from its gate's messages. The loop calls ``read`` and ``died`` when a descriptor is ready."""

    def __init__(self, jail: Jail, steps: Sequence[Step]) -> None:
        self._jail, self._steps = jail, steps
        self._kept_fds: list[int] = []
        self.begun = False
        self.exits: list[StepExit] = []
        #: When the last compiler step ended.
        self.compiled_at: float | None = None
        #: Whether no more messages will come.
        self.finished = False
        #: Whether nothing but the gate runs any more.
        self.alone = False
        #: Whether the jail ended by itself, for a reason that the host does not know.
        self.lost = False

    def read(self, fd: int) -> None:
        """Read the gate's messages. Raises ``EnforcerFailed`` when the gate could not build a wall."""
        try:
            data, descriptors = receive_with_files(self._jail.control, 65536, MAX_KEPT)
            self._kept_fds += descriptors
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.finished = self.lost = True
            return
        if len(self._kept_fds) > sum(len(step.keeps) for step in self._steps):
            raise EnforcerFailed("gate", "unexpected files came out of the jail; it was ended")
        for message in self._jail.inbox.feed(data):
            if message["op"] == "started":
                self.begun = True
            elif message["op"] == "exit":
                self._step_ended(step_exit(message))
            elif message["op"] == "broken":
                enforcer = self._jail.walls.enforcer or "none"
                raise EnforcerFailed(enforcer, f"a wall could not be built, nothing was run: {broken(message)}")

    def died(self, fd: int) -> None:
        """The gate ended."""
        self.finished = self.lost = True

    def _step_ended(self, end: StepExit) -> None:
        if len(self.exits) >= len(self._steps):
            raise EnforcerFailed("gate", "more steps ended in the jail than it was given; it was ended")
        step = self._steps[len(self.exits)]
        self.exits.append(end)
        if step.compiles:
            self.compiled_at = time.monotonic()
        self.finished = end.code != 0 or len(self.exits) >= len(self._steps)
        self.alone = self.finished and end.alone

    def kept(self) -> tuple[bytes, ...]:
        """Return the files that the steps handed over, all or none of them."""
        fds, self._kept_fds = self._kept_fds, []
        asked = sum(len(step.keeps) for step in self._steps)
        kept = read_kept(fds, MAX_KEPT_BYTES)
        return kept if len(kept) == asked else ()

    def close(self) -> None:
        """Close files that were not used. May be called twice."""
        read_kept(self._kept_fds, 0)
        self._kept_fds = []
