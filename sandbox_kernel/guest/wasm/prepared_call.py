"""Calls one function of a guest again and again with the same numbers; for the calls of which a cell consists.

``wasmtime.Func`` asks for the function's type and converts every number at each call, which takes a tenth of a
millisecond. Here that is done once.
"""

from __future__ import annotations

import ctypes

import wasmtime
from wasmtime import _ffi as ffi
from wasmtime._func import enter_wasm


class PreparedCall:
    """A call with fixed arguments. All arguments, and the one result, are numbers of 32 bits."""

    def __init__(self, store: wasmtime.Store, function: wasmtime.Func, arguments: tuple[int, ...]) -> None:
        i32 = wasmtime.ValType.i32()
        kind = function.type(store)
        if kind.params != [i32] * len(arguments) or kind.results != [i32]:
            raise wasmtime.WasmtimeError("the function takes or returns something else")
        self._store, self._function = store, function
        self._given = (ffi.wasmtime_val_t * len(arguments))()
        for number, value in enumerate(arguments):
            self._given[number] = wasmtime.Val._convert_to_raw(store, i32, value)
        self._result = (ffi.wasmtime_val_t * 1)()

    def __call__(self) -> int:
        """Call the function and return its result; raises what ``wasmtime.Func`` raises."""
        given, result = self._given, self._result
        with enter_wasm(self._store) as trap:
            function = ctypes.byref(self._function._func)
            error = ffi.wasmtime_func_call(self._store._context(), function, given, len(given), result, 1, trap)
            if error:
                raise wasmtime.WasmtimeError._from_ptr(error)
        return int(result[0].of.i32)
