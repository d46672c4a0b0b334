"""Checks, prepares and compiles one module; runs in a jailed child under limits on time and memory.

The host runs only modules that this step has accepted, so this step finds everything that would keep a module from
running: broken or oversized modules, unknown imports, a missing entry point.
"""

from __future__ import annotations

import os

import wasmtime

from .binary import PAGE_BYTES, TARGET, TRUSTED, Caps, Import, Malformed, ModuleFacts, inspect
from .engine import GuestEnding, describe_error, make_engine, make_linker
from .plan import CompilePlan
from .rewrite import prepare

ENTRY = "_start"
_NO_ENTRY = f"export the function to run as {ENTRY}, or {TARGET} and not as a library"
_UNKNOWN_IMPORT = f"only wasi_snapshot_preview1 and the module sandbox (fetch) are given; {TARGET}"
_OTHER_IMPORT = f"the import is declared in another way than WASI has it; {TARGET}"


def compile_module(plan: CompilePlan) -> GuestEnding:
    """Compile ``plan.source`` into ``plan.out``. For a bad module, returns an ``invalid`` ending that says why."""
    with open(plan.source, "rb") as file:
        data = file.read()
    try:
        if plan.text:
            data = bytes(wasmtime.wat2wasm(data.decode()))
        if plan.plain:
            return _written(plan, wasmtime.Module(make_engine(plan.switches, parallel=True), data).serialize(), 0)
        facts = inspect(data, TRUSTED if plan.trusted else Caps())
        _check_entry(facts, plan)
        too_large = _too_large(facts, plan.memory_bytes)
        if too_large is not None:
            return too_large
        engine = make_engine(plan.switches, parallel=plan.trusted)
        prepared = prepare(data, facts)
        if prepared != data and not plan.trusted:
            # Validate before ``prepare``: a module must not become valid by what that adds, or it could use our
            # counter.
            wasmtime.Module.validate(engine, data)
        module = wasmtime.Module(engine, prepared)
        if not plan.trusted:
            _check_imports(engine, module, facts)
        compiled = module.serialize()
    except Malformed as error:
        return GuestEnding(end="invalid", message=str(error))
    except wasmtime.WasmtimeError as error:
        return GuestEnding(end="invalid", message=describe_error(error))
    return _written(plan, compiled, (facts.memory_pages or 0) * PAGE_BYTES)


def _written(plan: CompilePlan, compiled: bytearray, memory_bytes: int) -> GuestEnding:
    descriptor = os.open(plan.out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(compiled)
    return GuestEnding(end="compiled", memory_bytes=memory_bytes)


def _check_entry(facts: ModuleFacts, plan: CompilePlan) -> None:
    if plan.trusted:
        return
    if facts.exports.get(ENTRY, ("", 0))[0] != "func":
        names = ", ".join(sorted(repr(name) for name, (kind, _) in facts.exports.items() if kind == "func")[:5])
        found = f"; it exports {names}" if names else ""
        raise Malformed(f"the module exports no {ENTRY} function, so there is nothing to run{found}", _NO_ENTRY)


def _check_imports(engine: wasmtime.Engine, module: wasmtime.Module, facts: ModuleFacts) -> None:
    """Raise ``Malformed`` with the engine's words unless everything that the module imports is offered."""
    linker = make_linker(engine)
    try:
        linker.instantiate_pre(module)
    except wasmtime.WasmtimeError as error:
        offered = all(_offers(linker, wasmtime.Store(engine), item) for item in facts.imports)
        raise Malformed(describe_error(error), _OTHER_IMPORT if offered else _UNKNOWN_IMPORT) from None


def _offers(linker: wasmtime.Linker, store: wasmtime.Store, item: Import) -> bool:
    try:
        linker.get(store, item.module, item.name)
    except wasmtime.WasmtimeError:
        return False
    return True


def _too_large(facts: ModuleFacts, memory_bytes: int | None) -> GuestEnding | None:
    asked = (facts.memory_pages or 0) * PAGE_BYTES
    if memory_bytes is None or asked <= memory_bytes:
        return None
    message = f"the module starts with {asked} bytes of memory; the limit is {memory_bytes}"
    return GuestEnding(end="memory", message=message, memory_bytes=0, refused=1)
