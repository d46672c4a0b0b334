"""Calls the functions of QuickJS: values by handle, one host function. Makes images of it.

The module is npm's ``quickjs-wasi``. A value is named by a handle (an address in linear memory), which stays valid in
an image of that memory. JavaScript calls host functions by name. Only strings are passed between host and guest.

An image is an engine that has started and loaded its libraries, which takes seconds, compiled as a module of its own
(``make_image``), once when a language is prepared.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import wasmtime
from wasmtime import _ffi as ffi
from wasmtime._extern import wrap_extern

from .binary import TRUSTED, Malformed, inspect
from .engine import GuestExit, make_engine, make_linker, making_store
from .plan import BakePlan, LibraryPlan
from .rewrite import REFUSED, STDERR, STDOUT, bake, prepare, with_console

EVAL_MODULE, EVAL_COMPILE, EVAL_ASYNC = 1, 1 << 5, 1 << 7
PENDING, FULFILLED, REJECTED = 0, 1, 2
#: How much of the guest's stack JavaScript may use before it throws a RangeError.
STACK_BYTES = 256 << 10


class JavaScriptError(Exception):
    """Raised when JavaScript threw a value; ``handle`` is that value, and the code that catches this must free it."""

    def __init__(self, handle: int) -> None:
        super().__init__("a JavaScript value was thrown")
        self.handle = handle


class Export:
    """Looks up exports one at a time: wrapping all 450 of them would take longer than most programs."""

    def __init__(self, store: wasmtime.Store, instance: wasmtime.Instance) -> None:
        self._store, self._instance = store, instance
        self._found: dict[str, object] = {}

    def find(self, name: str) -> object | None:
        """Return the export of this name, or None."""
        if name not in self._found:
            item, text = ffi.wasmtime_extern_t(), name.encode()
            known = ffi.wasmtime_instance_export_get(
                self._store._context(),
                ctypes.byref(self._instance._instance),
                ctypes.create_string_buffer(text),
                len(text),
                ctypes.byref(item),
            )
            self._found[name] = wrap_extern(item) if known else None
        return self._found[name]

    def function(self, name: str) -> wasmtime.Func:
        """Return an exported function; raises ``KeyError`` when it is missing."""
        found = self.find(name)
        if not isinstance(found, wasmtime.Func):
            raise KeyError(f"the guest exports no function {name}")
        return found

    def refusals(self) -> int | None:
        """Return how often the guest's memory was refused to grow; None for a module that does not count it."""
        counter = self.find(REFUSED)
        return int(counter.value(self._store)) if isinstance(counter, wasmtime.Global) else None

    def memory(self) -> wasmtime.Memory:
        """Return the linear memory; raises ``KeyError`` when it is missing."""
        found = self.find("memory")
        if not isinstance(found, wasmtime.Memory):
            raise KeyError("the guest exports no memory")
        return found


class QuickJs:
    """One engine instance. ``host`` answers calls of JavaScript; ``interrupted`` is called while code runs."""

    def __init__(self, store: wasmtime.Store, module: wasmtime.Module, linker: wasmtime.Linker) -> None:
        self.store = store
        self.host: Callable[[list[str]], str] = lambda _request: "V"
        self.interrupted: Callable[[], bool] = lambda: False
        self.load_module: Callable[[str], str] = lambda name: ""
        #: Rejected promises without a handler: the handle of the reason, by the promise's identity.
        self.rejected: dict[int, int] = {}
        self._length_at = 0
        self._define(linker)
        self.export = Export(store, linker.instantiate(store, module))
        self.memory = self.export.memory()

    def boot(self) -> None:
        """Start the runtime in a new instance; an instance made from an image has it already."""
        self.ask("_initialize")
        if self.ask("qjs_init"):
            raise RuntimeError("QuickJS did not start")
        for switch in ("interrupt_handler", "promise_rejection_handler", "module_loader"):
            self.ask(f"qjs_set_{switch}", 1)
        self.ask("qjs_set_max_stack_size", STACK_BYTES)

    def evaluate(self, source: str, name: str, flags: int = 0) -> int:
        """Evaluate code; returns the handle of its value, or of a promise if the code may await."""
        with self._texts(source, name) as ((code, size), (file, _)):
            return self._checked(self.ask("qjs_eval", code, size, file, flags))

    def call(self, function: int, *arguments: int) -> int:
        """Call a function with these handles; returns the handle of its result."""
        this = self.ask("qjs_get_undefined")
        place = self._allocate(4 * len(arguments)) if arguments else 0
        if arguments:
            packed = b"".join(handle.to_bytes(4, "little") for handle in arguments)
            self.memory.write(self.store, packed, place)
        try:
            return self._checked(self.ask("qjs_call", function, this, len(arguments), place))
        finally:
            self.free(this)
            if place:
                self.ask("wasm_free", place)

    def get(self, thing: int, name: str) -> int:
        """Return the handle of a property."""
        with self._texts(name) as ((place, _),):
            return self._checked(self.ask("qjs_get_prop_string", thing, place))

    def string(self, text: str) -> int:
        """Make a string and return its handle; the caller frees it."""
        with self._texts(text) as ((place, size),):
            return self._checked(self.ask("qjs_new_string", place, size))

    def host_function(self, name: str = "host") -> int:
        """Return the handle of the function that calls the host, or that prints (``rewrite.py``)."""
        with self._texts(name) as ((place, size),):
            return self._checked(self.ask("qjs_new_host_function", place, size, 0))

    @contextlib.contextmanager
    def _texts(self, *texts: str) -> Iterator[list[tuple[int, int]]]:
        """Put texts into the guest's memory for one call; yields the address and size of each."""
        places = [self._put(text) for text in texts]
        try:
            yield places
        finally:
            for place, _ in places:
                self.ask("wasm_free", place)

    def text(self, handle: int, store: wasmtime.Store | wasmtime.Caller | None = None) -> str:
        """Return a value as a string."""
        where = store if store is not None else self.store
        if not self._length_at:
            self._length_at = self._allocate(4, where)
        start = self.export.function("qjs_get_string_len")(where, handle, self._length_at) & 0xFFFFFFFF
        if not start:
            return ""
        size = int.from_bytes(self._bytes(where, self._length_at, 4), "little")
        data = self._bytes(where, start, size)
        self.export.function("qjs_free_cstring")(where, start)
        return data.decode("utf-8", "replace")

    def _bytes(self, store: wasmtime.Store | wasmtime.Caller, start: int, size: int) -> bytes:
        """Return a piece of linear memory; ``Memory.read`` copies byte by byte and is a hundred times slower."""
        if start + size > self.memory.data_len(store):
            raise IndexError(f"the guest names memory at {start} that it does not have")
        return ctypes.string_at(ctypes.addressof(self.memory.data_ptr(store).contents) + start, size)

    def run_jobs(self) -> None:
        """Run the pending jobs of promises; raises ``JavaScriptError`` if one throws."""
        while self.ask("qjs_is_job_pending"):
            if self.ask("qjs_execute_pending_job") < 0:
                raise JavaScriptError(self.ask("qjs_get_exception"))

    def free(self, handle: int) -> None:
        """Free a handle."""
        self.ask("qjs_free_value", handle)

    def ask(self, name: str, *arguments: int) -> int:
        """Call a function of the module."""
        result = self.export.function(name)(self.store, *arguments)
        return result & 0xFFFFFFFF if isinstance(result, int) and result >= 0 else result or 0

    def _checked(self, handle: int) -> int:
        handle &= 0xFFFFFFFF
        if self.ask("qjs_is_exception", handle):
            self.free(handle)
            raise JavaScriptError(self.ask("qjs_get_exception") & 0xFFFFFFFF)
        return handle

    def _allocate(self, size: int, store: wasmtime.Store | wasmtime.Caller | None = None) -> int:
        address = self.export.function("wasm_malloc")(store if store is not None else self.store, size) & 0xFFFFFFFF
        if not address:
            raise MemoryError("the guest has no memory left")
        return int(address)

    def _put(self, text: str, store: wasmtime.Store | wasmtime.Caller | None = None) -> tuple[int, int]:
        where = store if store is not None else self.store
        data = text.encode("utf-8", "surrogatepass")
        address = self._allocate(len(data) + 1, where)
        self.memory.write(where, data + b"\0", address)
        return address, len(data)

    def _define(self, linker: wasmtime.Linker) -> None:
        i32 = wasmtime.ValType.i32()

        def define(name: str, parameters: int, results: int, function: Callable[..., object]) -> None:
            kind = wasmtime.FuncType([i32] * parameters, [i32] * results)
            linker.define_func("env", name, kind, function, access_caller=True)

        define("host_call", 5, 1, self._host_call)
        define("host_interrupt", 0, 1, lambda _caller: int(self.interrupted()))
        define("host_promise_rejection", 3, 0, self._promise_rejection)
        define("host_module_normalize", 2, 1, self._module_name)
        define("host_module_load", 2, 1, self._module_source)
        define("host_get_timezone_offset", 2, 1, lambda _caller, _high, _low: 0)

    def _host_call(
        self, caller: wasmtime.Caller, _name: int, _size: int, _this: int, count: int, arguments: int
    ) -> int:
        handles = self._bytes(caller, arguments & 0xFFFFFFFF, 4 * count)
        request = [self.text(int.from_bytes(handles[i : i + 4], "little"), caller) for i in range(0, len(handles), 4)]
        place, size = self._put(self.host(request), caller)
        handle = self.export.function("qjs_new_string")(caller, place, size)
        self.export.function("wasm_free")(caller, place)
        return int(handle)

    def _promise_rejection(self, caller: wasmtime.Caller, promise: int, reason: int, handled: int) -> None:
        free = self.export.function("qjs_free_value")
        identity = self.export.function("qjs_get_value_ptr")(caller, promise)
        known = self.rejected.pop(identity, None)
        if known is not None:
            free(caller, known)
        if handled:
            free(caller, reason)
        else:
            self.rejected[identity] = reason
        free(caller, promise)

    def _c_string(self, caller: wasmtime.Caller, address: int) -> str:
        start = address & 0xFFFFFFFF
        data = self._bytes(caller, start, min(8192, self.memory.data_len(caller) - start))
        return data.partition(b"\0")[0].decode("utf-8", "replace")

    def _module_name(self, caller: wasmtime.Caller, base: int, name: int) -> int:
        wanted, importer = self._c_string(caller, name), self._c_string(caller, base)
        if wanted.startswith("."):
            folder = importer.rpartition("/")[0] if importer.startswith("/") else "/box"
            wanted = f"{folder}/{wanted}"
        return self._put(wanted, caller)[0]

    def _module_source(self, caller: wasmtime.Caller, name: int, length_at: int) -> int:
        try:
            source = self.load_module(self._c_string(caller, name))
        except GuestExit:
            raise
        except OSError:
            return 0
        place, size = self._put(source, caller)
        self.memory.write(caller, size.to_bytes(4, "little"), length_at & 0xFFFFFFFF)
        return place


#: Functions that ``javascript_boot.js`` returns and this module calls; their handles are saved with an image.
DRIVER = (
    "tick", "inspect", "describe", "facts", "begin", "exitCode", "timers", "completions", "look",
    "countNames", "moduleNames", "offer",
)  # fmt: skip
#: Wraps a CommonJS library. ``process`` is undefined, so that the library does not expect files and processes of node.
_COMMONJS = """(function () {{ const module = {{ exports: {{}} }}, exports = module.exports, process = undefined;
const require = (name) => globalThis[Symbol.for("sandbox.libraries")][name];
{}
return module.exports; }})()"""
#: Libraries by the name under which others import them; gone before the image is taken.
_OPEN = """(function (host) {
globalThis[Symbol.for("sandbox.libraries")] = {}; globalThis[Symbol.for("sandbox.host")] = host; })"""
_NAMED = """(function (name, library) { globalThis[Symbol.for("sandbox.libraries")][name] = library; })"""
_IMPORTED = """const library = globalThis[Symbol.for("sandbox.libraries")][{name}];
export default library.default ?? library; export const {{ {names} }} = library;"""
_CLOSE = """delete globalThis[Symbol.for("sandbox.libraries")]; delete globalThis[Symbol.for("sandbox.host")];"""


def make_image(plan: BakePlan) -> bytearray:
    """Boot QuickJS and run the libraries; returns the compiled image, and writes the handles of its functions."""
    with open(plan.source, "rb") as file:
        data = file.read()
    engine = make_engine(plan.switches, parallel=True)
    store = making_store(engine, plan.switches)
    plain = with_console(data, inspect(data, TRUSTED))
    ready = prepare(plain, inspect(plain, TRUSTED))
    js = QuickJs(store, wasmtime.Module(engine, ready), make_linker(engine))
    try:
        handles = _booted(js, plan)
    except JavaScriptError as error:
        message = js.text(error.handle) + "\n" + js.text(js.get(error.handle, "stack"))
        raise Malformed(f"a library does not run in the engine: {message}") from None
    js.ask("qjs_run_gc")
    with open(plan.facts, "w") as facts:
        json.dump(handles, facts)
    image = bake(ready, bytes(js.memory.read(store, 0, js.memory.data_len(store))))
    return wasmtime.Module(engine, image).serialize()


def _booted(js: QuickJs, plan: BakePlan) -> dict[str, int]:
    js.boot()
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    functions = [js.host_function(name) for name in ("host", STDOUT, STDERR)]
    driver = js.call(js.evaluate(_source(f"{folder}/wasm/inside/javascript_boot.js"), "<boot>"), *functions)
    handles = {name: js.get(driver, name) for name in DRIVER}
    if plan.glue is not None:
        js.free(js.call(js.evaluate(_OPEN, "<boot>"), functions[0]))
        libraries = [_loaded(js, library, folder) for library in plan.libraries]
        values = [library for library in libraries if library is not None]
        glue = js.call(js.evaluate(_source(f"{folder}/{plan.glue}"), "<boot>"), functions[0], *values)
        handles.update({name: js.get(glue, name) for name in plan.glue_names})
        js.free(js.evaluate(_CLOSE, "<boot>"))
    return handles


def _source(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _loaded(js: QuickJs, library: LibraryPlan, folder: str) -> int | None:
    """Run a library. Returns the handle of its exports; None for a library that only other libraries use."""
    source, name = _source(os.path.join(folder, library.path)), os.path.basename(library.path)
    for old, new in library.patches:
        if source.count(old) != 1:
            raise Malformed(f"{name} is not the library that its patch was made for")
        source = source.replace(old, new)
    if library.kind == "script":
        js.free(js.evaluate(source, name))
        return None
    if library.kind == "commonjs":
        exported = js.evaluate(_COMMONJS.format(source), name)
    else:
        js.load_module = lambda wanted: _imported(wanted, library.imports)
        promise = js.evaluate(source, name, EVAL_MODULE)
        js.run_jobs()
        if js.ask("qjs_promise_state", promise) != FULFILLED:
            raise JavaScriptError(js.ask("qjs_promise_result", promise))
        exported = js.ask("qjs_promise_result", promise)
    if library.name is None:
        return exported
    js.free(js.call(js.evaluate(_NAMED, "<boot>"), js.string(library.name), exported))
    return None


def _imported(wanted: str, known: Mapping[str, Sequence[str]]) -> str:
    """Return the source of a module that re-exports the library of that name."""
    if wanted not in known:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), wanted)
    return _IMPORTED.format(name=json.dumps(wanted), names=", ".join(known[wanted]))
