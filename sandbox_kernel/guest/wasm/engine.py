"""The engine that compiles and runs guests, and the one place that decides which proposals are on.

A compiled module only loads into an engine with the same switches, so the compile step, the runner and the cache key
(``fingerprint``) all come here. Wrong combinations of switches do not raise: they abort the process, which is one more
reason why an engine never lives in the host's process.
"""

from __future__ import annotations

from dataclasses import dataclass

import wasmtime
from wasmtime import _ffi as ffi

#: Off for every guest: each is attack surface that no program compiled for WASI needs.
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
#: Above this wasmtime aborts unless its async stack is enlarged first.
_PLAIN_STACK_MOST = 2 << 20


@dataclass(frozen=True, kw_only=True)
class Switches:
    """What differs between engines: fuel, the depth of the call stack, and exceptions for guests that need them."""

    fuel: bool = False
    stack_bytes: int = DEFAULT_STACK_BYTES
    exceptions: bool = False


PLAIN = Switches()


def make_engine(switches: Switches, *, parallel: bool = False) -> wasmtime.Engine:
    """An engine of its own for one execution: its epoch stops nobody else's guest."""
    config = wasmtime.Config()
    config.epoch_interruption = True
    config.consume_fuel = switches.fuel
    config.parallel_compilation = parallel
    for name in _OFF:
        setattr(config, name, False)
    config.wasm_exceptions = switches.exceptions
    if switches.stack_bytes > _PLAIN_STACK_MOST:
        ffi.wasmtime_config_async_stack_size_set(config.ptr(), switches.stack_bytes)
    config.max_wasm_stack = switches.stack_bytes
    return wasmtime.Engine(config)
