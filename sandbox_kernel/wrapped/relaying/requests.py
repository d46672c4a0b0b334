"""What front ends asked for: cells that the kernel has not finished, how long the first has run, where replies go."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sandbox_kernel.wrapped.relaying.clean_replies import CompletionRequest

#: The most cells that are remembered; a front end that queues more gets them run all the same.
_MOST = 10_000
#: How many signatures and routes, and how many completion requests, are remembered.
_MOST_ROUTES, _MOST_COMPLETIONS = 65_536, 100
#: How long an interrupted cell may go on before its kernel is ended.
GRACE_S = 5.0


@dataclass(frozen=True)
class SentCell:
    """A cell: the header of its request, where its reply goes, its name in the notebook, and whether it may ask."""

    header: Mapping[str, object]
    routing: Sequence[bytes]
    name: str = ""
    may_ask: bool = True


_K = TypeVar("_K")
_V = TypeVar("_V")


class _Newest(OrderedDict[_K, _V]):
    """The newest entries, at most so many."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: _K, value: _V) -> None:
        super().__setitem__(key, value)
        if len(self) > self._most:
            self.popitem(last=False)


class Requests:
    """What front ends asked for. Measures the time of cells: a kernel runs them in order, so the first one's counts."""

    def __init__(self, timeout_s: float | None) -> None:
        #: Good signatures that were seen: no message is taken twice.
        self.seen: _Newest[bytes, None] = _Newest(_MOST_ROUTES)
        #: Where replies go, by the id of the request. Kernels need not return a routing prefix of several parts.
        self.routes: _Newest[str, Sequence[bytes]] = _Newest(_MOST_ROUTES)
        #: What front ends want to be completed, by the id of the request.
        self.completions: _Newest[str, CompletionRequest] = _Newest(_MOST_COMPLETIONS)
        self._timeout_s = timeout_s
        self._cells: OrderedDict[str, SentCell] = OrderedDict()
        #: Which of the two messages that end a cell came first.
        self.ending: dict[str, str] = {}
        self._since = 0.0
        #: Since when a prompt is open; the time until its answer does not count.
        self._asked_at: float | None = None
        #: Whether the first cell was interrupted for its time.
        self.interrupted = False

    def sent(self, message_id: str, cell: SentCell) -> None:
        """A front end sent a cell."""
        if not self._cells:
            self._begin()
        if len(self._cells) < _MOST:
            self._cells[message_id] = cell

    def get(self, message_id: str) -> SentCell | None:
        """Return a cell that was sent and is not finished."""
        return self._cells.get(message_id)

    def ends(self, message_id: str, kind: str) -> bool:
        """Return whether a cell is over: the kernel has sent its reply and an idle status, of which this is one."""
        if message_id not in self._cells:
            return False
        first = self.ending.setdefault(message_id, kind)
        return first != kind

    def finished(self, message_id: str) -> None:
        """A cell is over."""
        first = next(iter(self._cells), None)
        self._cells.pop(message_id, None)
        self.ending.pop(message_id, None)
        if first == message_id:
            self._begin()

    def asked(self, message_id: str) -> bool:
        """A cell asks for input: the clock stands until the answer. False when it may not ask."""
        cell = self._cells.get(message_id)
        if cell is None or not cell.may_ask:
            return False
        if next(iter(self._cells)) == message_id:
            self._asked_at = self._asked_at or time.monotonic()
        return True

    def answered(self) -> None:
        """The front end answered."""
        if self._asked_at is not None:
            self._since += time.monotonic() - self._asked_at
            self._asked_at = None

    def left_s(self) -> float | None:
        """Return how long the first cell may still run, with its grace once it was interrupted; None: no limit."""
        if self._timeout_s is None or not self._cells or self._asked_at is not None:
            return None
        limit = self._timeout_s + (GRACE_S if self.interrupted else 0.0)
        return self._since + limit - time.monotonic()

    def cells(self) -> list[SentCell]:
        """Return every cell that is not finished, the first one first: that one runs."""
        return list(self._cells.values())

    def _begin(self) -> None:
        self._since = time.monotonic()
        self.interrupted = False
        self._asked_at = None
