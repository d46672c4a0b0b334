"""The program that runs WebAssembly, inside a jailed child. Standard library and wasmtime only.

It gets a plan (``plan.py``) and the descriptor for its report (``engine.py``). The guest's standard streams are this
process's own.

The guest runs on a thread with a stack of known size. The host keeps its time and kills this process when that is over.

The host starts the program before it has a plan (``wait``): forked when its jail is made, and warmed up.
"""

from __future__ import annotations

import functools
import json
import os
import threading
from dataclasses import dataclass, replace

import wasmtime

from ..gate import lockdown
from .binary import PAGE_BYTES, Caps, Malformed
from .embedder import JavaScriptEmbedder
from .engine import (
    PLAIN,
    GuestEnding,
    GuestExit,
    Switches,
    describe_error,
    ending_of,
    make_engine,
    make_linker,
    make_repeatable,
)
from .guest_fetch import WHERE
from .guest_files import Folders
from .host_line import CALL, NEXT, receive_order
from .plan import BakePlan, BootPlan, CompilePlan, Plan, RunPlan, read_fields, read_plan
from .python_image import LETTER_BOX, OUT_OF_MEMORY, PLACES, ImageEntry, make_booted
from .quickjs import QuickJs, make_image
from .rewrite import ENTRY, REFUSED, START, TABLE, compile_module
from .wasi import PlainWasi

#: Native stack besides the guest's own, for the engine's calls and this interpreter.
_HOST_STACK_BYTES = 4 << 20
#: The descriptor of the channel to the host, for the report and for questions.
_CHANNEL = 3
#: A start value so low that refusals by the module's own maximum never reach zero and count as ours.
_NEVER = -(1 << 31)
#: Keeps the guest alive: freeing it takes time, and the process ends soon anyway.
_held: list[GuestThread] = []


class GuestThread:
    """One execution, with its own engine, store and module; used once."""

    def __init__(self, plan: RunPlan, parts: Parts) -> None:
        self.plan = plan
        self.parts = parts
        self.store = wasmtime.Store(parts.engine)
        self.memory: wasmtime.Memory | None = None
        self.refused: wasmtime.Global | None = None
        self.ending: GuestEnding
        self.failure: BaseException | None = None
        self._ours = True

    def run(self) -> None:
        """Run the guest to its end and set ``ending``; called on the guest's thread."""
        try:
            try:
                ending = self._call()
            except (wasmtime.WasmtimeError, wasmtime.Trap, GuestExit) as error:
                ending = ending_of(error)
            except MemoryError:  # the guest's memory is full: an argument could not be passed to it
                ending = GuestEnding(end="memory", message="the guest has no memory left", refused=1)
            self.ending = self._measured(ending)
        except BaseException as error:  # a bug of this program: the main thread raises it
            self.failure = error

    def _call(self) -> GuestEnding:
        plan, store = self.plan, self.store
        module = self.parts.module(plan.module)
        store.set_limits(plan.memory_bytes, Caps.table_elements, instances=1, tables=8, memories=1)
        if plan.fuel is not None:
            store.set_fuel(plan.fuel)
        wasi = self._own_wasi(module)
        linker = self.parts.linker if wasi is None else make_linker(self.parts.engine, wasi.define)
        if wasi is None:
            config = wasmtime.WasiConfig()
            config.argv, config.env = list(plan.argv), list(plan.env.items())
            config.inherit_stdin()
            config.inherit_stdout()
            config.inherit_stderr()
            for folder in plan.preopens:
                config.preopen_dir(folder.host, folder.guest, folder.writable)
            store.set_wasi(config)
        make_repeatable(linker, plan.clock_ns, plan.seed)
        if plan.program is not None:
            return self._javascript(module)
        exports = linker.instantiate(store, module).exports(store)
        self._watch(exports.get("memory"), exports.get(REFUSED))
        if self.memory is not None and wasi is not None:
            wasi.memory, wasi.store = self.memory, store
        if plan.booted and self.memory is not None:
            image = ImageEntry(self.memory, store, exports[TABLE])
            image.name_mounts([folder.guest for folder in plan.preopens])
            if plan.line is not None and not image.call("turn"):
                raise wasmtime.WasmtimeError("the functions of the host could not be offered")
            image.run_program(plan.argv, plan.env)
        for function in (exports.get(START), exports[ENTRY]):
            if isinstance(function, wasmtime.Func):
                if count := len(function.type(store).params):
                    return GuestEnding(
                        end="trap", message=f"{ENTRY} takes {count} parameters; export one that takes none"
                    )
                function(store)
        return GuestEnding(end="exit", code=0)

    def _own_wasi(self, module: wasmtime.Module) -> PlainWasi | None:
        """Return WASI of our own for a guest that asks its user or calls host functions; None for the engine's."""
        plan, line = self.plan, self.plan.line
        if plan.program is not None or not (plan.asks or line is not None):
            return None
        if not any(item.name == "memory" and isinstance(item.type, wasmtime.MemoryType) for item in module.exports):
            return None
        calls = line is not None and tuple(folder.guest for folder in plan.preopens[: len(PLACES)]) == PLACES

        def answer(message: bytes) -> bytes:
            assert line is not None
            if message == NEXT:
                return json.dumps({"call": "offer", "arguments": [line.listing]}).encode()
            return line.answer(message.removeprefix(CALL))

        wasi = PlainWasi(plan.argv, plan.env, letter_box=LETTER_BOX if calls else -1, letter=answer)
        wasi.give(plan.preopens)
        wasi.read_input = _AskedInput().read if plan.asks else functools.partial(os.read, 0)
        return wasi

    def _javascript(self, module: wasmtime.Module) -> GuestEnding:
        plan = self.plan
        js = QuickJs(self.store, module, self.parts.linker)
        self._watch(js.memory, js.export.find(REFUSED))
        # The folders of JavaScript and of the shell are beneath a root of their own.
        folders = Folders([folder for folder in plan.preopens if folder.guest != "/"])
        with open(plan.facts or "", "rb") as file:
            guest = JavaScriptEmbedder(js, json.load(file), folders)
        if plan.asks:
            guest.host.ask_user = _asked
        if plan.line is not None:
            guest.offer(plan.line)
        program = plan.program or ""
        source, name = folders.read(program).decode("utf-8", "replace"), os.path.basename(program)
        guest.begin([plan.argv[0], program, *plan.argv[1:]], plan.env)
        if plan.translate is not None:
            translated = guest.translated(plan.translate, source, name)
            if translated is None:
                return GuestEnding(end="untranslated", code=1)
            source = translated
        return GuestEnding(end="exit", code=guest.run(source, name))

    def _watch(self, memory: object, refused: object) -> None:
        """Remember the guest's memory and its counter of refused growths."""
        if isinstance(memory, wasmtime.Memory):
            self.memory = memory
            most = memory.type(self.store).limits.max
            self._ours = most is None or most * PAGE_BYTES > self.plan.memory_bytes
        if isinstance(refused, wasmtime.Global):
            self.refused = refused
            if not self._ours:
                refused.set_value(self.store, _NEVER)

    def _measured(self, ending: GuestEnding) -> GuestEnding:
        store, plan = self.store, self.plan
        if plan.booted and ending.code == OUT_OF_MEMORY:
            ending = replace(ending, code=1, refused=1)
        refused = ending.refused or (self.refused.value(store) if self.refused is not None and self._ours else 0)
        failed = ending.end == "trap" or (ending.end == "exit" and ending.code != 0)
        return replace(
            ending,
            end="memory" if refused and failed else ending.end,
            fuel_used=None if plan.fuel is None else plan.fuel - store.get_fuel(),
            memory_bytes=self.memory.data_len(store) if self.memory is not None else ending.memory_bytes,
            refused=int(refused),
        )


def _asked(prompt: str) -> str:
    """Ask the user for a line over the report's channel; raises ``EOFError`` where the host has no user to ask."""
    try:
        os.write(_CHANNEL, json.dumps({"ask": prompt}).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            part = os.read(_CHANNEL, 1 << 16)
            if not part:
                raise EOFError
            answer += part
    except OSError:
        raise EOFError from None
    value = json.loads(answer)["answer"]
    if not isinstance(value, str):
        raise EOFError
    return value


class _AskedInput:
    """Standard input whose lines come from the user, who is asked when the guest has used up the last one."""

    def __init__(self) -> None:
        self._line = b""
        self._ended = False

    def read(self, size: int) -> bytes:
        if not self._line and not self._ended and size:
            try:
                self._line = (_asked("") + "\n").encode("utf-8", "replace")
            except EOFError:
                self._ended = True
        part, self._line = self._line[:size], self._line[size:]
        return part


def run_guest(plan: RunPlan, ahead: Parts | None = None) -> GuestEnding:
    """Run the plan on a thread with a stack of its own; uses the parts made in advance if they fit."""
    for folder in plan.preopens:
        if not os.path.isdir(folder.host):
            return GuestEnding(end="trap", message=f"the folder {folder.guest} is gone; mount it again")
    guest = GuestThread(
        plan, ahead if ahead is not None and ahead.switches == plan.switches else make_parts(plan.switches)
    )
    _held.append(guest)
    threading.stack_size(plan.switches.stack_bytes + _HOST_STACK_BYTES)
    thread = threading.Thread(target=guest.run, daemon=True)
    thread.start()
    thread.join()
    if guest.failure is not None:
        raise guest.failure
    return guest.ending


def make(plan: CompilePlan | BootPlan | BakePlan) -> GuestEnding:
    """Compile a module or make an image into ``plan.out``; a bad module is an ``invalid`` ending that says why."""
    try:
        if isinstance(plan, CompilePlan):
            compiled = compile_module(plan)
        elif isinstance(plan, BootPlan):
            compiled = make_booted(plan)
        else:
            compiled = make_image(plan)
    except Malformed as error:
        return GuestEnding(end="invalid", message=str(error))
    except (wasmtime.WasmtimeError, wasmtime.Trap) as error:
        return GuestEnding(end="invalid", message=describe_error(error))
    descriptor = os.open(plan.out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(compiled)
    return GuestEnding(end="compiled")


def carry_out(plan: Plan, status: str, ahead: Parts | None = None) -> int:
    """Carry out the plan, send the report, and return the exit code: the guest's where that is possible."""
    ending = run_guest(plan, ahead) if isinstance(plan, RunPlan) else make(plan)
    if ending.end in ("trap", "memory", "fuel") and ending.message:
        os.write(2, ending.message.encode() + b"\n")
    with open(int(status), "wb") as file:
        file.write(ending.line())
    # The exit code that is nearest to the ending; only the report is exact.
    if ending.end == "exit" and ending.code is not None:
        return ending.code if 0 <= ending.code <= 255 else 1
    return 0 if ending.end == "compiled" else 134


@dataclass(frozen=True)
class Parts:
    """An engine and its objects; ``known`` maps files to modules that were loaded in advance."""

    switches: Switches
    engine: wasmtime.Engine
    linker: wasmtime.Linker
    known: dict[str, wasmtime.Module]

    def module(self, path: str) -> wasmtime.Module:
        """Return a compiled module; loads it now if it was not loaded in advance."""
        return self.known.get(path) or wasmtime.Module.deserialize_file(self.engine, path)


def make_parts(switches: Switches = PLAIN, ahead: str | None = None) -> Parts:
    """Build the parts of one execution; ``ahead`` is the file of the module that it will most likely run."""
    engine = make_engine(switches)
    known = {ahead: wasmtime.Module.deserialize_file(engine, ahead)} if ahead is not None else {}
    return Parts(switches, engine, make_linker(engine), known)


_NOTHING = """(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (drop (call $write (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 8)))))"""
#: Compiled once, in the process that imports this module and forks the embedders.
_COMPILED = wasmtime.Module(make_engine(PLAIN), _NOTHING).serialize()


def wait(order: int, arguments: list[str]) -> None:
    """Warm up with the module that is likely needed, wait for the order on this descriptor and carry it out."""
    # The first run of an engine in a new process costs some milliseconds of page faults, threads and lazy imports: a
    # guest that does nothing runs through the same code, so that the user's run does not wait for them.
    with os.fdopen(lockdown.memfd_create("nothing", 0), "wb") as file:
        file.write(_COMPILED)
        file.flush()
        run_guest(RunPlan(module=f"/proc/self/fd/{file.fileno()}"))
    ahead = make_parts()
    if len(arguments) == 2:
        ahead = make_parts(read_fields(Switches, json.loads(arguments[1])), arguments[0])
    given = receive_order(order)
    os.chdir(given.cwd)
    if WHERE in given.env:
        os.environ[WHERE] = given.env[WHERE]
    text, status = given.argv
    document = json.loads(text)
    if given.descriptors:
        document["module"] = f"/proc/self/fd/{given.descriptors[0]}"
    plan = read_plan(document)
    if given.line is not None and isinstance(plan, RunPlan):
        plan = replace(plan, line=given.line)
    os._exit(carry_out(plan, status, ahead))
