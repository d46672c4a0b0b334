"""What the gate says of a job while it runs: begun, the end of each step, files that are kept, a wall that fell."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.jail.core.gate_messages import Step, StepExit, broken, step_exit
from sandbox_kernel.jail.core.handed_over import MAX_KEPT, MAX_KEPT_BYTES, read_kept, receive_with_files
from sandbox_kernel.jail.core.jail import Jail


class GateWords:
    """The state of a job as its gate tells it. The loop calls ``read`` and ``died`` when there is something to hear."""

    def __init__(self, jail: Jail, steps: Sequence[Step]) -> None:
        self._jail, self._steps = jail, steps
        self._kept_fds: list[int] = []
        self.begun = False
        self.exits: list[StepExit] = []
        #: When the last compiler ended.
        self.compiled_at: float | None = None
        #: There is no more to come.
        self.finished = False
        #: The jail has ended by itself, and not because of anything that we know of.
        self.lost = False

    def read(self, fd: int) -> None:
        """Take what the gate has said; ``EnforcerFailed`` when it could not build what was asked for."""
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
            raise EnforcerFailed("gate", "files came out of the jail that nobody had asked for; it was ended")
        for message in self._jail.inbox.feed(data):
            if message["op"] == "started":
                self.begun = True
            elif message["op"] == "exit":
                self._step_ended(step_exit(message))
            elif message["op"] == "broken":
                enforcer = self._jail.walls.enforcer or "none"
                raise EnforcerFailed(enforcer, f"a wall did not stand, nothing was run: {broken(message)}")

    def died(self, fd: int) -> None:
        """The gate is gone."""
        self.finished = self.lost = True

    def _step_ended(self, end: StepExit) -> None:
        if len(self.exits) >= len(self._steps):
            raise EnforcerFailed("gate", "more steps ended in the jail than it was given; it was ended")
        step = self._steps[len(self.exits)]
        self.exits.append(end)
        if step.compiles:
            self.compiled_at = time.monotonic()
        self.finished = end.code != 0 or len(self.exits) >= len(self._steps)

    def kept(self) -> tuple[bytes, ...]:
        """The files that the steps handed over, all or none of them."""
        fds, self._kept_fds = self._kept_fds, []
        asked = sum(len(step.keeps) for step in self._steps)
        kept = read_kept(fds, MAX_KEPT_BYTES)
        return kept if len(kept) == asked else ()

    def close(self) -> None:
        """Let go of files that nobody took; may be called twice."""
        read_kept(self._kept_fds, 0)
        self._kept_fds = []
