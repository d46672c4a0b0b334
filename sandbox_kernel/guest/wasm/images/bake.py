"""Makes an image: an engine that has started and loaded its libraries, compiled as a module of its own.

Done once when a language is prepared, in a jail, from files whose checksums the host has verified. A program starts
from the image in microseconds; loading the libraries takes seconds.
"""

from __future__ import annotations

import errno
import json
import os

import wasmtime

from ..binary.format import Malformed
from ..binary.inspect_module import inspect
from ..binary.quickjs_console import STDERR, STDOUT, with_console
from ..binary.rewrite import prepare
from ..compile_module import TRUSTED
from ..endings import GuestEnding, describe_error
from ..engine import make_engine
from ..javascript.embedder import DRIVER
from ..javascript.quickjs import EVAL_MODULE, FULFILLED, JavaScriptError, QuickJs
from ..plan import BakePlan, LibraryPlan
from ..wasi.engine_overrides import make_linker
from .image import bake

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


def make_image(plan: BakePlan) -> GuestEnding:
    """Boot QuickJS, run the libraries, write the compiled image and the handles of its functions."""
    with open(plan.source, "rb") as file:
        data = file.read()
    engine = make_engine(plan.switches, parallel=True)
    store = wasmtime.Store(engine)
    try:
        plain = with_console(data, inspect(data, TRUSTED))
        ready = prepare(plain, inspect(plain, TRUSTED))
        store.set_epoch_deadline(1)
        if plan.switches.fuel:
            store.set_fuel((1 << 63) - 1)
        config = wasmtime.WasiConfig()
        config.inherit_stdout()
        config.inherit_stderr()
        store.set_wasi(config)
        js = QuickJs(store, wasmtime.Module(engine, ready), make_linker(engine))
        handles = _boot(js, plan)
        js.collect_garbage()
        memory = js.memory
        image = bake(ready, bytes(memory.read(store, 0, memory.data_len(store))))
        compiled = wasmtime.Module(engine, image).serialize()
    except Malformed as error:
        return GuestEnding(end="invalid", message=str(error))
    except wasmtime.WasmtimeError as error:
        return GuestEnding(end="invalid", message=describe_error(error))
    except JavaScriptError as error:
        message = js.text(error.handle) + "\n" + js.text(js.get(error.handle, "stack"))
        return GuestEnding(end="invalid", message=f"a library does not run in the engine: {message}")
    with open(plan.out, "wb") as file:
        file.write(compiled)
    with open(plan.handles, "w") as file:
        json.dump(handles, file)
    return GuestEnding(end="compiled", memory_bytes=len(image))


def _boot(js: QuickJs, plan: BakePlan) -> dict[str, int]:
    js.boot()
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    functions = [js.host_function(name) for name in ("host", STDOUT, STDERR)]
    driver = js.call(js.evaluate(_source(f"{folder}/wasm/javascript/javascript_boot.js"), "<boot>"), *functions)
    handles = {name: js.get(driver, name) for name in DRIVER}
    if plan.glue is not None:
        js.free(js.call(js.evaluate(_OPEN, "<boot>"), functions[0]))
        libraries = [_library(js, library, folder) for library in plan.libraries]
        values = [library for library in libraries if library is not None]
        glue = js.call(js.evaluate(_source(f"{folder}/{plan.glue}"), "<boot>"), functions[0], *values)
        handles.update({name: js.get(glue, name) for name in plan.glue_names})
        js.free(js.evaluate(_CLOSE, "<boot>"))
    return handles


def _source(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _library(js: QuickJs, library: LibraryPlan, folder: str) -> int | None:
    """Run a library. Returns the handle of its exports; None for a library that only other libraries use."""
    source, name = _source(os.path.join(folder, library.path)), os.path.basename(library.path)
    for old, new in library.patches:
        if source.count(old) != 1:
            raise Malformed(f"{name} is not the library that its patch was made for")
        source = source.replace(old, new)
    if library.kind == "script":
        js.free(js.evaluate(source, name))
        return None
    if library.kind == "text":
        return js.string(source)
    if library.kind == "json":
        return js.evaluate(f"JSON.parse({json.dumps(source)})", name)
    if library.kind == "commonjs":
        exported = js.evaluate(_COMMONJS.format(source), name)
    else:
        js.load_module = lambda wanted: _imported(wanted, library.imports)
        promise = js.evaluate(source, name, EVAL_MODULE)
        js.run_jobs()
        if js.promise_state(promise) != FULFILLED:
            raise JavaScriptError(js.promise_result(promise))
        exported = js.promise_result(promise)
    if library.name is None:
        return exported
    js.free(js.call(js.evaluate(_NAMED, "<boot>"), js.string(library.name), exported))
    return None


def _imported(wanted: str, known: dict[str, tuple[str, ...]]) -> str:
    """Return the source of a module that re-exports the library of that name."""
    if wanted not in known:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), wanted)
    return _IMPORTED.format(name=json.dumps(wanted), names=", ".join(known[wanted]))
