"""Checkpoints that were given up and have not ended yet: each is to say what its variables are before it goes.

To look and to end takes several times as long as a small cell, so with cells back to back it is left for the time in
which nothing runs (``session/between_cells.py``). At most ``MOST_LEAVING`` checkpoints wait for that; the oldest go
at once when there are more, and all when memory is short.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sandbox_kernel.session.worker.gate_client import GateClient

#: How many checkpoints may wait. Each holds some megabytes, and a place for a process.
MOST_LEAVING = 20
#: How many checkpoints look at their variables at once.
LOOKS_AT_ONCE = 4


class Leaving:
    """The checkpoints of one worker that are on their way out, by node.

    Args:
        gate: carries out the orders.
        hear: takes in what the checkpoints of these nodes have found; waits until they have looked.

    """

    def __init__(self, gate: GateClient, hear: Callable[[Sequence[int]], None]) -> None:
        self._gate, self._hear = gate, hear
        self._waiting: list[int] = []
        self._looking: list[int] = []

    def nodes(self) -> tuple[int, ...]:
        """Return the nodes whose checkpoints have not ended, oldest first."""
        return (*self._looking, *self._waiting)

    def add(self, nodes: Sequence[int], most: int) -> None:
        """Let these checkpoints go, after a look. ``most`` of all may wait for that; for the others it begins now."""
        self._gate.let_go(nodes)
        self._waiting += nodes
        if len(self.nodes()) > most:
            self.step(len(self._waiting) - most)

    def step(self, wanted: int = LOOKS_AT_ONCE) -> None:
        """End the checkpoints that have looked, and let the next few look; does not wait for these."""
        if self._looking:
            self._hear(self._looking)
            self._gate.drop(self._looking)
        count = max(0, min(wanted, LOOKS_AT_ONCE))
        self._looking, self._waiting = self._waiting[:count], self._waiting[count:]
        self._gate.look(self._looking, last=True)

    def finish(self) -> None:
        """Let all of them look and end, and wait for it."""
        while self._looking or self._waiting:
            self.step()

    def end(self) -> None:
        """End all of them without a look, and wait until their memory is free."""
        self._gate.drop(list(self.nodes()), wait=True)
        self._waiting, self._looking = [], []

    def stay(self, *, strict: bool) -> tuple[int, ...]:
        """Return those that a rollback leaves alone. A strict one ends those that look: they run code of the user."""
        if strict:
            self._looking = []
        return self.nodes()

    def forget(self, node: int) -> None:
        """Note that the checkpoint of a node has ended: the gate has put another one into its place."""
        self._waiting = [other for other in self._waiting if other != node]
        self._looking = [other for other in self._looking if other != node]
