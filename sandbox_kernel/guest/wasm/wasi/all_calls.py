"""All of WASI (preview 1) in plain Python, for the guests of sessions: no threads, so that the worker can fork.

The engine's own WASI starts a thread pool at the first call, and checkpoints are forks. Arguments, environment, clocks,
random numbers, sleep and exit are here (``WorldCalls``), calls on open files in ``file_calls.py``, on names in
``path_calls.py``; there are no sockets.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence

import wasmtime

from ..engine import GuestExit
from ..guest_files import Folders
from .engine_overrides import WASI
from .file_calls import INVALID, IO, MOST_VECTORS, NO_CALL, NOT_PERMITTED, NUMBERS, GuestMemory, WasiRefusal
from .path_calls import PathCalls

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


#: The parameters of each call: i is i32, I is i64. All calls except proc_exit return an error number.
_CALLS = {
    "args_get": "ii", "args_sizes_get": "ii", "environ_get": "ii", "environ_sizes_get": "ii", "clock_res_get": "ii",
    "clock_time_get": "iIi", "fd_advise": "iIIi", "fd_allocate": "iII", "fd_close": "i", "fd_datasync": "i",
    "fd_fdstat_get": "ii", "fd_fdstat_set_flags": "ii", "fd_filestat_get": "ii", "fd_filestat_set_size": "iI",
    "fd_filestat_set_times": "iIIi", "fd_pread": "iiiIi", "fd_prestat_get": "ii", "fd_prestat_dir_name": "iii",
    "fd_pwrite": "iiiIi", "fd_read": "iiii", "fd_readdir": "iiiIi", "fd_renumber": "ii", "fd_seek": "iIii",
    "fd_sync": "i", "fd_tell": "ii", "fd_write": "iiii", "path_create_directory": "iii", "path_filestat_get": "iiiii",
    "path_filestat_set_times": "iiiiIIi", "path_link": "iiiiiii", "path_open": "iiiiiIIii", "path_readlink": "iiiiii",
    "path_remove_directory": "iii", "path_rename": "iiiiii", "path_symlink": "iiiii", "path_unlink_file": "iii",
    "poll_oneoff": "iiii", "proc_exit": "i", "sched_yield": "", "random_get": "ii", "fd_fdstat_set_rights": "iII",
    "proc_raise": "i", "sock_accept": "iii", "sock_recv": "iiiiii", "sock_send": "iiiii", "sock_shutdown": "ii",
}  # fmt: skip


class PlainWasi(WorldCalls, PathCalls):
    """The calls of one guest; ``memory`` and ``store`` are set when it has been instantiated."""

    def __init__(
        self, folders: Folders, places: Sequence[str], argv: Sequence[str], env: Mapping[str, str],
        write: Callable[[int, bytes], None], letter: Callable[[bytes], bytes] = bytes,
    ) -> None:  # fmt: skip
        WorldCalls.__init__(self, argv, env)
        PathCalls.__init__(self, folders, places, write, letter)

    def define(self, linker: wasmtime.Linker) -> None:
        """Define the calls in a guest's linker."""
        kinds = {"i": wasmtime.ValType.i32(), "I": wasmtime.ValType.i64()}
        for name, parameters in _CALLS.items():
            results = [] if name == "proc_exit" else [kinds["i"]]
            kind = wasmtime.FuncType([kinds[letter] for letter in parameters], results)
            linker.define_func(WASI, name, kind, self._proc_exit if name == "proc_exit" else self._guarded(name))

    def _guarded(self, name: str) -> Callable[..., int]:
        call = getattr(self, f"_{name}", None)
        if call is None:
            return lambda *_arguments: NOT_PERMITTED if name.startswith("path_") else NO_CALL

        def guarded(*arguments: int) -> int:
            try:
                call(*arguments)
            except WasiRefusal as error:
                return error.number
            except OSError as error:
                return NUMBERS.get(error.errno or 0, IO)
            except (ValueError, OverflowError, struct.error):  # numbers outside of any valid range
                return INVALID
            return 0

        return guarded
