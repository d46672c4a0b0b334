"""The program that runs WebAssembly, inside a jailed child; never imported by the host.

Arguments: PLAN STATUS. PLAN is a JSON file (``plan.py``); STATUS is the descriptor number or file for the report
(``endings.py``).
The guest's standard streams are this process's own. Standard library and wasmtime only.

The guest runs on a thread with a stack of known size; the main thread keeps its time. The engine's epoch stops a guest
in a loop. A guest that sleeps, waits for input or writes into a full pipe is in a host call that cannot be interrupted:
then the process reports and exits. If that fails too, the host kills the process a moment later.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import dataclass, replace

import wasmtime

from .binary.inspect_module import PAGE_BYTES
from .binary.rewrite import REFUSED, START
from .compile_module import ENTRY, compile_module
from .endings import GuestEnding, GuestExit, ending_of
from .guest_files import Folders
from .images.memory_file import map_memory
from .parts import Parts, make_parts
from .plan import BakePlan, BootPlan, CompilePlan, PackagesPlan, RunPlan, read_plan
from .wasi.asked_input import INSTANCES, AskedInput, ask, reads_input
from .wasi.engine_overrides import make_repeatable
from .wasi.host_descriptor import INSTANCES as CALLING_INSTANCES
from .wasi.host_descriptor import HostDescriptor, can_call

#: How long a stopped guest may take to return, in seconds, before the process exits.
_GRACE_S = 0.1
#: Native stack besides the guest's own, for the engine's calls and this interpreter.
_HOST_STACK_BYTES = 4 << 20
_TABLES, _INSTANCES, _MEMORIES = 8, 1, 1
#: The file beside a program that declares the host functions.
HOST_TYPES = "host.d.ts"
#: The descriptor of the channel to the host, for the report and for questions.
_CHANNEL = 3
#: A start value so low that refusals by the module's own maximum never reach zero and count as ours.
_NEVER = -(1 << 31)


#: Keeps the guest alive: freeing it takes time, and the process ends soon anyway.
_held: list[GuestThread] = []


@dataclass(frozen=True)
class MappedGuest:
    """An instance whose memory is replaced before it runs."""

    memory: wasmtime.Memory
    store: wasmtime.Store


class GuestThread:
    """One execution, with its own engine, store and module; used once."""

    def __init__(self, plan: RunPlan, parts: Parts) -> None:
        self.plan = plan
        self.parts = parts
        self.store = wasmtime.Store(parts.engine)
        self.memory: wasmtime.Memory | None = None
        self.refused: wasmtime.Global | None = None
        self.ending = GuestEnding(end="epoch", message="stopped while waiting in a host call")
        self.failure: BaseException | None = None
        self._ours = True

    def run(self) -> None:
        """Run the guest to its end and set ``ending``; called on the guest's thread."""
        try:
            self.ending = self._measured(self._run())
        except BaseException as error:  # a bug of this program: the main thread raises it
            self.failure = error

    def _run(self) -> GuestEnding:
        try:
            return self._call()
        except (wasmtime.WasmtimeError, wasmtime.Trap, GuestExit) as error:
            return ending_of(error)
        except MemoryError:  # the guest's memory is full: an argument could not be passed to it
            return GuestEnding(end="memory", message="the guest has no memory left", refused=1)

    def _call(self) -> GuestEnding:
        plan, store = self.plan, self.store
        module = self.parts.module(plan.module)
        store.set_limits(
            memory_size=plan.memory_bytes,
            table_elements=plan.table_elements,
            instances=_INSTANCES + (INSTANCES if plan.asks else 0) + (CALLING_INSTANCES if plan.line else 0),
            tables=_TABLES,
            memories=_MEMORIES,
        )
        store.set_epoch_deadline(1)
        if plan.fuel is not None:
            store.set_fuel(plan.fuel)
        asked = AskedInput(_CHANNEL) if plan.asks and plan.program is None and reads_input(module) else None
        store.set_wasi(_wasi(plan))
        make_repeatable(self.parts.linker, plan)
        if plan.program is not None:
            return self._javascript(module)
        engine, linker = self.parts.engine, self.parts.linker
        places = [folder.guest for folder in plan.preopens]
        calls = HostDescriptor(plan.line) if plan.line is not None and can_call(module, places) else None
        for part in (asked, calls):
            if part is not None:
                part.link(store, linker, engine)
        exports = linker.instantiate(store, module).exports(store)
        self._watch(exports.get("memory"), exports.get(REFUSED))
        if plan.memory is not None and self.memory is not None:
            map_memory(MappedGuest(self.memory, store), os.open(plan.memory, os.O_RDONLY | os.O_CLOEXEC))
        for part in (asked, calls):
            if part is not None and self.memory is not None:
                part.join(store, self.memory, engine)
        for function in (exports.get(START), exports[ENTRY]):
            if isinstance(function, wasmtime.Func):
                if count := len(function.type(store).params):
                    return GuestEnding(
                        end="trap", message=f"{ENTRY} takes {count} parameters; export one that takes none"
                    )
                function(store)
        return GuestEnding(end="exit", code=0)

    def _javascript(self, module: wasmtime.Module) -> GuestEnding:
        from .javascript.embedder import JavaScriptEmbedder, Untranslated
        from .javascript.quickjs import QuickJs

        plan = self.plan
        js = QuickJs(self.store, module, self.parts.linker)
        self._watch(js.memory, js.export.find(REFUSED))
        # The folders of JavaScript and of the shell are beneath a root of their own.
        folders = Folders([folder for folder in plan.preopens if folder.guest != "/"])
        with open(plan.handles or "", "rb") as file:
            guest = JavaScriptEmbedder(js, json.load(file), folders)
        if plan.asks:
            guest.host.ask_user = _asked
        if plan.line is not None:
            guest.offer(plan.line)
        program = plan.program or ""
        source = folders.read(program).decode("utf-8", "replace")
        guest.begin([plan.argv[0], program, *plan.argv[1:]], dict(plan.env))
        try:
            code = guest.run_translated(
                source, os.path.basename(program), plan.translate, _host_types(folders, program)
            )
        except Untranslated:
            return GuestEnding(end="untranslated", code=1)
        return GuestEnding(end="exit", code=code)

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
        if ending.end == "exit" and plan.memory_exit is not None and ending.code == plan.memory_exit:
            ending = replace(ending, code=1, refused=1)
        refused = ending.refused or (self.refused.value(store) if self.refused is not None and self._ours else 0)
        failed = ending.end == "trap" or (ending.end == "exit" and ending.code != 0)
        return GuestEnding(
            end="memory" if refused and failed else ending.end,
            code=ending.code,
            message=ending.message,
            fuel_used=None if plan.fuel is None else plan.fuel - store.get_fuel(),
            memory_bytes=self.memory.data_len(store) if self.memory is not None else ending.memory_bytes,
            refused=int(refused),
        )


def _host_types(folders: Folders, program: str) -> str:
    """Return the file with the types of host functions, which the host puts beside a program whose types it checks."""
    try:
        return folders.read(os.path.join(os.path.dirname(program), HOST_TYPES)).decode()
    except OSError:
        return ""


def _asked(prompt: str) -> str:
    answer = ask(_CHANNEL, prompt)
    if answer is None:
        raise EOFError
    return answer


def _wasi(plan: RunPlan) -> wasmtime.WasiConfig:
    config = wasmtime.WasiConfig()
    config.argv = list(plan.argv)
    config.env = list(plan.env)
    config.inherit_stdin()
    config.inherit_stdout()
    config.inherit_stderr()
    for folder in plan.preopens:
        config.preopen_dir(folder.host, folder.guest, folder.writable)
    return config


def run_guest(plan: RunPlan, ahead: Parts | None = None) -> GuestEnding:
    """Run the plan on a thread while this thread keeps the time; uses the parts made in advance if they fit."""
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
    thread.join(None if plan.asks else plan.deadline_s)
    if thread.is_alive():
        guest.parts.engine.increment_epoch()
        thread.join(_GRACE_S)
    if guest.failure is not None:
        raise guest.failure
    return guest.ending


def _report(status: str, ending: GuestEnding) -> None:
    if status.isdigit():
        os.write(int(status), ending.line())
        return
    with open(status, "wb") as file:
        file.write(ending.line())


def _exit_code(ending: GuestEnding) -> int:
    """Return the exit code that is nearest to the ending; only the report is exact."""
    if ending.end == "exit" and ending.code is not None:
        return ending.code if 0 <= ending.code <= 255 else 1
    return 0 if ending.end == "compiled" else 134


def carry_out(
    plan: RunPlan | CompilePlan | BakePlan | BootPlan | PackagesPlan, status: str, ahead: Parts | None = None
) -> int:
    """Carry out the plan, send the report, and return the exit code: the guest's where that is possible."""
    if isinstance(plan, RunPlan):
        ending = run_guest(plan, ahead)
    elif isinstance(plan, CompilePlan):
        ending = compile_module(plan)
    elif isinstance(plan, BootPlan):
        from .images.boot_python import boot_on_a_thread

        ending = boot_on_a_thread(plan)
    elif isinstance(plan, PackagesPlan):
        from .images.load_packages import load_packages

        ending = load_packages(plan)
    else:
        from .images.bake import make_image

        ending = make_image(plan)
    if ending.end in ("trap", "memory", "fuel") and ending.message:
        os.write(2, ending.message.encode() + b"\n")
    _report(status, ending)
    return _exit_code(ending)


def main() -> None:
    """Carry out the plan in a file. Exits without the usual teardown, because a guest may still be in a host call."""
    plan_file, status = sys.argv[1:]
    # A file that grows beyond its limit must be an error for the guest, not the end of the embedder.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with open(plan_file, "rb") as file:
        plan = read_plan(json.load(file))
    os._exit(carry_out(plan, status))
