"""The engine that compiles and runs guests, its own WASI, and how a guest ended.

A compiled module loads only into an engine with the same switches, so the compile step, the embedder and the cache key
all use this module. Wrong combinations of switches do not raise: they abort the process.

An ending is one JSON line for the host. Messages contain text of the guest (function names), so their length is bounded
here and the host escapes them again.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import wasmtime
from wasmtime import _ffi as ffi

from .guest_fetch import define_fetch

WASI = "wasi_snapshot_preview1"
_SUCCESS, _FAULT, _INVALID = 0, 21, 28
_MOST_RANDOM_BYTES = 1 << 20

#: Proposals that are off for every guest: each is attack surface that programs compiled for WASI do not need.
_OFF = (
    "wasm_threads",
    "wasm_memory64",
    "wasm_multi_memory",
    "wasm_relaxed_simd",
    "wasm_gc",
    "wasm_function_references",
    "wasm_wide_arithmetic",
    "wasm_custom_page_sizes",
    "wasm_stack_switching",
    "wasm_component_model",
)
DEFAULT_STACK_BYTES = 1 << 20
#: Above this stack size wasmtime aborts unless its async stack is enlarged first.
_PLAIN_STACK_MOST = 2 << 20


@dataclass(frozen=True, kw_only=True)
class Switches:
    """The settings that differ between engines: fuel, the size of the call stack, and exceptions."""

    fuel: bool = False
    stack_bytes: int = DEFAULT_STACK_BYTES
    exceptions: bool = False


PLAIN = Switches()


def make_engine(switches: Switches, *, parallel: bool = False) -> wasmtime.Engine:
    """Make an engine for one guest."""
    config = wasmtime.Config()
    config.consume_fuel = switches.fuel
    config.parallel_compilation = parallel
    for name in _OFF:
        setattr(config, name, False)
    config.wasm_exceptions = switches.exceptions
    if switches.stack_bytes > _PLAIN_STACK_MOST:
        ffi.wasmtime_config_async_stack_size_set(config.ptr(), switches.stack_bytes)
    config.max_wasm_stack = switches.stack_bytes
    return wasmtime.Engine(config)


_MOST_FRAMES = 20
_MOST_TEXT = 4000


@dataclass(frozen=True, kw_only=True)
class GuestEnding:
    """How a guest ended; ``end`` is exit, trap, fuel, memory, untranslated, invalid or compiled."""

    end: str
    code: int | None = None
    message: str = ""
    fuel_used: int | None = None
    memory_bytes: int | None = None
    #: How often the memory limit refused to grow the guest's memory, also when the guest went on.
    refused: int = 0

    def line(self) -> bytes:
        """Return the report as one line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


class GuestExit(Exception):
    """Raised when the guest calls ``proc_exit``, to leave it with its exact exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def describe_trap(trap: wasmtime.Trap) -> str:
    """Return what went wrong and in which functions, innermost first."""
    # The engine's message has the frames, which are bounded below, then the reason.
    lines = ["wasm trap: " + trap.message.strip().splitlines()[-1].rpartition("wasm trap: ")[2].strip()]
    for frame in trap.frames[:_MOST_FRAMES]:
        name = frame.func_name or f"function {frame.func_index}"
        lines.append(f"  at {printable(name, 200)}")
    return printable("\n".join(lines), _MOST_TEXT)


def describe_torn(error: BaseException) -> str:
    """Return why a guest stopped in the middle of a call: a trap, an exit, or an exception of ours in a host call."""
    if isinstance(error, wasmtime.Trap):
        return describe_trap(error)
    if isinstance(error, wasmtime.WasmtimeError | GuestExit):
        return printable(str(error), _MOST_TEXT)
    return printable(f"a call of the guest failed outside of it: {type(error).__name__}: {error}", _MOST_TEXT)


def printable(text: str, most: int) -> str:
    """Return a guest's text without terminal control characters, at most ``most`` characters."""
    clean = "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
    return clean if len(clean) <= most else clean[: most - 1] + "…"


def describe_error(error: wasmtime.WasmtimeError | wasmtime.Trap) -> str:
    """Return the engine's error message without the heading between its causes; source excerpts keep their layout."""
    lines = [line.rstrip() for line in str(error).splitlines()]
    return printable("\n".join(line for line in lines if line and line != "Caused by:").strip(), _MOST_TEXT)


def ending_of(error: GuestExit | wasmtime.Trap | wasmtime.WasmtimeError) -> GuestEnding:
    """Return the ending for what the call of a guest raised, from a start function or ``_start``."""
    if isinstance(error, GuestExit):
        return GuestEnding(end="exit", code=error.code)
    if isinstance(error, wasmtime.Trap):
        end = "fuel" if error.trap_code == wasmtime.TrapCode.OUT_OF_FUEL else "trap"
        return GuestEnding(end=end, message=describe_trap(error))
    message = describe_error(error)
    # wasmtime has no code for this error, so its message is matched.
    # A growth that is refused later is counted by the module (rewrite.py).
    if "exceeds memory limits" in message:
        more = "give it more (--memory 256M, memory_mb=256) or let it start with less"
        return GuestEnding(end="memory", message=f"{message}; {more}")
    return GuestEnding(end="trap", message=message)


def making_store(
    engine: wasmtime.Engine, switches: Switches, argv: Sequence[str] = (), folders: Mapping[str, str] | None = None
) -> wasmtime.Store:
    """Make a store for a guest of which an image is made; ``folders`` are those that it may write, by its names."""
    store, config = wasmtime.Store(engine), wasmtime.WasiConfig()
    if switches.fuel:
        store.set_fuel((1 << 63) - 1)
    config.argv = list(argv)
    config.inherit_stdout()
    config.inherit_stderr()
    for name, folder in (folders or {}).items():
        config.preopen_dir(folder, name, True)
    store.set_wasi(config)
    return store


def make_linker(
    engine: wasmtime.Engine, define_wasi: Callable[[wasmtime.Linker], None] | None = None
) -> wasmtime.Linker:
    """Make a linker for one guest, with WASI of our own (``wasi.py``) or the engine's.

    The engine makes links too: it refuses absolute targets and read-only folders, and resolves every link beneath the
    folder in which the path began.
    """
    linker = wasmtime.Linker(engine)
    linker.allow_shadowing = True
    if define_wasi is not None:
        define_wasi(linker)
    else:
        linker.define_wasi()
        # The engine's own proc_exit does not report exit codes of 126 and above.
        linker.define_func(WASI, "proc_exit", wasmtime.FuncType([wasmtime.ValType.i32()], []), proc_exit)
    define_fetch(linker)
    return linker


def proc_exit(code: int) -> None:
    """The call by which a guest ends itself."""
    raise GuestExit(code)


def make_repeatable(linker: wasmtime.Linker, clock_ns: int | None, seed: int | None) -> None:
    """Replace the clock, which then advances by a microsecond at each call, and random numbers where they are fixed."""
    ticks, source = itertools.count(1), random.Random(seed)  # noqa: S311 - asked for by name: the same at every run
    i32, i64 = wasmtime.ValType.i32(), wasmtime.ValType.i64()

    def write(caller: wasmtime.Caller, address: int, data: bytes) -> int:
        memory, start = caller.get("memory"), address & 0xFFFFFFFF
        if not isinstance(memory, wasmtime.Memory) or start + len(data) > memory.data_len(caller):
            return _FAULT
        memory.write(caller, data, start)
        return _SUCCESS

    def clock_time_get(caller: wasmtime.Caller, clock: int, _precision: int, address: int) -> int:
        now = (0 if clock or clock_ns is None else clock_ns) + next(ticks) * 1000
        return write(caller, address, (now & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little"))

    def random_get(caller: wasmtime.Caller, address: int, size: int) -> int:
        return write(caller, address, source.randbytes(size)) if 0 <= size <= _MOST_RANDOM_BYTES else _INVALID

    for fixed, function, parameters in (
        (clock_ns, clock_time_get, [i32, i64, i32]),
        (seed, random_get, [i32, i32]),
    ):
        if fixed is not None:
            kind = wasmtime.FuncType(parameters, [i32])
            linker.define_func(WASI, function.__name__, kind, function, access_caller=True)
