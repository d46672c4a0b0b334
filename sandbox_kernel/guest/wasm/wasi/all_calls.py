"""All of WASI (preview 1) in plain Python, for the guests of sessions: no threads, so that the worker can fork.

The engine's own WASI starts a thread pool at the first call, and checkpoints are forks. The calls are in
``world_calls.py`` (arguments, clocks, randomness), ``file_calls.py`` (open files) and ``path_calls.py`` (names); there
are no sockets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence

import wasmtime

from ..guest_files import Folders
from .engine_overrides import WASI
from .guest_memory import INVALID, IO, NO_CALL, NOT_PERMITTED, NUMBERS, WasiRefusal
from .path_calls import PathCalls
from .world_calls import WorldCalls

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
        write: Callable[[int, bytes], None], letter: Callable[[bytes], bytes],
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
