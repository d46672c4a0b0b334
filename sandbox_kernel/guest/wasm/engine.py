"""The engine that compiles and runs guests, and the only place that decides which WebAssembly proposals are on.

A compiled module loads only into an engine with the same switches, so the compile step, the embedder and the cache key
(``fingerprint``) all use this module. Wrong combinations of switches do not raise: they abort the process. That is one
more reason why an engine never runs in the host's process.
"""

from __future__ import annotations

from dataclasses import dataclass

import wasmtime
from wasmtime import _ffi as ffi

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
    """Make an engine for one execution only, so that advancing its epoch stops only that guest."""
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
