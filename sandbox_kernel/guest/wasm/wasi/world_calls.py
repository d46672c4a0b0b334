"""The WASI calls besides files: arguments, environment, clocks, random numbers, sleep, exit."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence

from ..endings import GuestExit
from .guest_memory import INVALID, MOST_VECTORS, GuestMemory, WasiRefusal

_MOST_RANDOM_BYTES = 1 << 20
#: How often a sleeping guest checks for an interrupt, in seconds.
_SLICE_S = 0.05


class WorldCalls(GuestMemory):
    """Arguments, environment, clocks and sleep of a guest; ``stop`` is called while it sleeps."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._argv = [word.encode() + b"\0" for word in argv]
        self._env = [f"{name}={value}".encode() + b"\0" for name, value in env.items()]
        self.stop: Callable[[], bool] = lambda: False

    def _table(self, words: list[bytes], table: int, data: int) -> None:
        for word in words:
            self._put_number(table, data)
            self._put(data, word)
            table, data = table + 4, data + len(word)

    def _args_get(self, table: int, data: int) -> None:
        self._table(self._argv, table, data)

    def _args_sizes_get(self, count: int, size: int) -> None:
        self._put_number(count, len(self._argv))
        self._put_number(size, sum(map(len, self._argv)))

    def _environ_get(self, table: int, data: int) -> None:
        self._table(self._env, table, data)

    def _environ_sizes_get(self, count: int, size: int) -> None:
        self._put_number(count, len(self._env))
        self._put_number(size, sum(map(len, self._env)))

    def _clock_res_get(self, _clock: int, at: int) -> None:
        self._put_number(at, 1000, 8)

    def _clock_time_get(self, clock: int, _precision: int, at: int) -> None:
        clocks = {0: time.time_ns, 1: time.monotonic_ns}
        self._put_number(at, clocks.get(clock, time.process_time_ns)(), 8)

    def _random_get(self, start: int, size: int) -> None:
        if not 0 <= size <= _MOST_RANDOM_BYTES:
            raise WasiRefusal(INVALID)
        self._put(start, os.urandom(size))

    def _sched_yield(self) -> None:
        pass

    def _proc_exit(self, code: int) -> None:
        raise GuestExit(code)

    def _poll_oneoff(self, asked: int, told: int, count: int, count_at: int) -> None:
        if not 0 < count <= MOST_VECTORS:
            raise WasiRefusal(INVALID)
        waits, now = [], []
        for number in range(count):
            user, tag = struct.unpack_from("<QB", entry := self._get(asked + 48 * number, 48))
            if tag != 0:
                now.append((user, tag))
                continue
            clock, nanoseconds, _, flags = struct.unpack_from("<IxxxxQQH", entry, 16)
            since = (time.time_ns() if clock == 0 else time.monotonic_ns()) if flags & 1 else 0
            waits.append((max(0, nanoseconds - since) / 1e9, user))
        if not now:
            shortest, user = min(waits)
            end = time.monotonic() + shortest
            while not self.stop() and (left := end - time.monotonic()) > 0:
                time.sleep(min(left, _SLICE_S))
            now = [(user, 0)]
        for number, (user, tag) in enumerate(now):
            self._put(told + 32 * number, struct.pack("<QHBxxxxxQHxxxxxx", user, 0, tag, 1, 0))
        self._put_number(count_at, len(now))
