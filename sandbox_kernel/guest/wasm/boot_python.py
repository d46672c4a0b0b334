"""Makes an image of a CPython that has started, from a published WASI command module, and imports packages into it.

The interpreter runs a program (``image_boot.py``) that imports common modules and ends in its first exit handler: the
interpreter is whole then, no Python function runs, and the memory stays. The memory is entered again through the
function table: every Python function holds the index of the C function that calls it. No address is known beforehand:
all are derived here, and the image must run a program before it is accepted.

The words of the memory that an interrupt sets are found here too. A signal handler of CPython sets four words to 1:
that this signal came, that one came, that one is to be handled, and that the interpreter's loop must look. The
interpreter is made to interrupt itself between two calls of its clock, which is ours: the words that went from 0 to 1
between them, every time, are these four. They are tried before the image is accepted.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import struct
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import wasmtime

from .binary import PAGE_BYTES, TRUSTED, Malformed, inspect
from .engine import WASI, GuestEnding, GuestExit, describe_error, describe_trap, make_engine, make_linker
from .memory import Entered, write_memory
from .plan import BootPlan, GuestPlan, PackagesPlan
from .python_image import RECORD_BYTES, ImageEntry, boot_source
from .python_session import PythonGuest
from .rewrite import STACK, TABLE, bake, exposed, prepare, with_stack

_BOOTED = 77
#: What the boot program writes at the beginning of the buffer for arguments.
_MARK = bytes(at * 37 + 11 & 255 for at in range(64))
#: The stack of the image, behind the memory at the boot. The module's own is too small for recursive C functions.
_STACK_BYTES = 4 << 20
#: The image's memory is a multiple of this, so that two images of one module have their stacks at the same place.
_ROUND_BYTES = 16 << 20
#: Native stack besides the guest's own.
_HOST_STACK_BYTES = 4 << 20
_CHECK = """import os, random, sys
with open("/box/checked", "w") as file: print(sys.argv[1:], os.environ.get("CHECK"), os.listdir("/m0"), file=file)
with open("/box/drawn", "w") as file: print(random.random(), file=file)
sys.exit(5)
"""


class NotBootable(Exception):
    """Raised when a module cannot be made into an image; the message says what was not as expected."""


def boot_on_a_thread(plan: BootPlan) -> GuestEnding:
    """Make the image on a thread whose stack is large enough for the guest's."""
    threading.stack_size(plan.switches.stack_bytes + _HOST_STACK_BYTES)
    with ThreadPoolExecutor(max_workers=1) as thread:
        return thread.submit(make_booted, plan).result()


def make_booted(plan: BootPlan) -> GuestEnding:
    """Write the compiled image to ``plan.out`` and what is known of it to ``plan.facts``."""
    with open(plan.source, "rb") as file:
        data = file.read()
    try:
        compiled = _image(plan, make_engine(plan.switches, parallel=True), data)
    except (NotBootable, Malformed, OSError, KeyError, ValueError, wasmtime.Trap) as error:
        return GuestEnding(end="invalid", message=f"an image of CPython could not be made: {error}")
    except wasmtime.WasmtimeError as error:
        return GuestEnding(end="invalid", message=describe_error(error))
    with open(plan.out, "wb") as out:
        out.write(compiled)
    return GuestEnding(end="compiled", memory_bytes=0)


def _image(plan: BootPlan, engine: wasmtime.Engine, data: bytes) -> bytearray:
    module = exposed(data, inspect(data, TRUSTED))
    folder = os.path.join(os.path.dirname(plan.out), "boot")
    os.mkdir(folder)
    try:
        booted = _Booted(plan, engine, module, folder)
        old_stack = booted.first_stack
        interrupt = booted.interrupt_words()
        entry = booted.settle()
        record = {
            "index": entry,
            "entries": {name: booted.entries[name] for name in ("turn", "program")},
            "spares": [booted.find(spare_name(plan, number)[1:].encode()) for number in range(plan.spares)],
            "buffer": booted.find(_MARK),
            "buffer_bytes": plan.buffer_bytes,
            "interrupt": interrupt,
        }
        place = booted.leave_record(old_stack, json.dumps(record).encode())
        with open(plan.facts, "w") as file:
            json.dump({"record": place}, file)
        content, stack = booted.memory_image()
        image = with_stack(bake(module, content), stack)
        compiled = wasmtime.Module(engine, prepare(image, inspect(image, TRUSTED))).serialize()
        _check(plan, engine, compiled, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return compiled


class _Booted:
    """An instance in which the boot program has run to its end."""

    def __init__(self, plan: BootPlan, engine: wasmtime.Engine, module: bytes, folder: str) -> None:
        self.folder = folder
        guest = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        programs = {name: os.path.join(guest, path) for name, path in plan.programs.items()}
        # The last of the folders that every run has holds the program, which sessions do not have.
        start = f'sys.modules["_boot"]._boot({plan.buffer_bytes})'
        source = boot_source(programs, 3 + len(plan.places) - 1, start)
        self.store = make_store(plan, engine, folder, ["python", "-c", source], spares=True)
        linker = make_linker(engine)
        self._clock = WatchedClock(linker)
        exports = linker.instantiate(self.store, wasmtime.Module(engine, module)).exports(self.store)
        memory, table, stack = exports["memory"], exports[TABLE], exports[STACK]
        if not isinstance(memory, wasmtime.Memory) or not isinstance(table, wasmtime.Table):
            raise NotBootable("the module exports no memory")
        if not isinstance(stack, wasmtime.Global):
            raise NotBootable("the module has no stack pointer")
        self.memory, self.table = memory, table
        self.first_stack = int(stack.value(self.store))
        begin = exports["_start"]
        assert isinstance(begin, wasmtime.Func)
        code = exit_code(functools.partial(begin, self.store))
        if code != _BOOTED:
            raise NotBootable(f"the boot program ended with {code}, not in its exit handler")
        with open(os.path.join(folder, "boot.json")) as file:
            found = json.load(file)
        self.entries: dict[str, int] = found["entries"]
        self._function_bytes: int = found["function_bytes"]

    def word(self, at: int) -> int:
        """Return the word at an address."""
        return int(struct.unpack("<I", self.memory.read(self.store, at, at + 4))[0])

    def find(self, content: bytes) -> int:
        """Return the only place of these bytes in the memory."""
        memory = bytes(self.memory.read(self.store, 0, self.memory.data_len(self.store)))
        place = memory.find(content)
        if place < 0 or memory.find(content, place + 1) >= 0:
            raise NotBootable(f"{content[:20]!r} is not in the memory exactly once")
        return place

    def vectorcall(self) -> int:
        """Return the table index of the C function that calls Python functions: the field they all have in common."""
        size, found = self.table.size(self.store), set[int]()
        for offset in range(8, self._function_bytes, 4):
            values = {self.word(address + offset) for address in self.entries.values()}
            if len(values) == 1 and 0 < (value := values.pop()) < size and self._is_call(value):
                found.add(value)
        if len(found) != 1:
            raise NotBootable(f"Python functions have {len(found)} fields that could be their call; expected 1")
        return found.pop()

    def _is_call(self, index: int) -> bool:
        function = self.table.get(self.store, index)
        if not isinstance(function, wasmtime.Func):
            return False
        kind = function.type(self.store)
        i32 = wasmtime.ValType.i32()
        return kind.params == [i32] * 4 and kind.results == [i32]

    def call(self, name: str) -> int:
        """Call a function of the boot program; returns the table index by which it was called."""
        index = self.vectorcall()
        function = self.table.get(self.store, index)
        assert isinstance(function, wasmtime.Func)
        if not function(self.store, self.entries[name], 0, 0, 0):
            raise NotBootable(f"the Python function {name} could not be called in the booted memory")
        return index

    def settle(self) -> int:
        """Call the function ``settle`` of the boot program; returns the table index by which it was called."""
        index = self.call("settle")
        if not os.path.exists(f"{self.folder}/settled"):
            raise NotBootable("a Python function did nothing when it was called in the booted memory")
        return index

    def interrupt_words(self) -> list[int]:
        """Return the addresses of the words that interrupt the interpreter, after an interrupt by them has worked.

        The first one belongs to this signal alone: without it the others are looked at and nothing is raised.
        """
        words = find_words(self._clock, lambda: self.call("probe"))
        own = words - find_words(self._clock, lambda: self.call("probe_other"))
        if len(words) != COUNT or len(own) != 1:
            raise NotBootable(
                f"an interrupt sets {len(words)} words of the memory, {len(own)} of its own; expected 4, 1"
            )
        for asked, expected in ((words - own, False), (words, True)):
            set_words(self._clock, asked, lambda: self.call("interrupted"))
            if os.path.exists(f"{self.folder}/interrupted") is not expected:
                raise NotBootable("an interrupt by memory did not come, or came without its own word")
        return [*own, *sorted(words - own)]

    def leave_record(self, stack: int, record: bytes) -> int:
        """Write what a session must know into the stack of the boot, which nothing uses any more; returns the place.

        The place depends on the module alone, so the memory of a saved session says of itself how to enter it.
        """
        place = stack - RECORD_BYTES
        if len(record) > RECORD_BYTES - 4 or place < 0:
            raise NotBootable("the stack of the boot has no room for the record")
        self.memory.write(self.store, len(record).to_bytes(4, "little") + record, place)
        return place

    def memory_image(self) -> tuple[bytes, int]:
        """Return the memory with a new stack behind it, and the first value of the stack pointer."""
        used = self.memory.data_len(self.store)
        size = -(-(used + _STACK_BYTES) // _ROUND_BYTES) * _ROUND_BYTES
        assert size % PAGE_BYTES == 0
        return bytes(self.memory.read(self.store, 0, used)) + bytes(size - used), size


def spare_name(plan: BootPlan, number: int) -> str:
    """Return the name of a spare folder at the boot; a run replaces it by the name of a mount."""
    return f"/{number:03}-spare".ljust(plan.spare_bytes, "~")


def make_store(
    plan: BootPlan, engine: wasmtime.Engine, folder: str, argv: Sequence[str] = ("python",), *, spares: bool
) -> wasmtime.Store:
    """Make a store whose guest sees the folder under the names of the plan."""
    store = wasmtime.Store(engine)
    store.set_epoch_deadline(1)
    if plan.switches.fuel:
        store.set_fuel((1 << 63) - 1)
    config = wasmtime.WasiConfig()
    config.argv = argv
    config.inherit_stdout()
    config.inherit_stderr()
    more = [spare_name(plan, number) for number in range(plan.spares)] if spares else ["/m0"]
    for name in (*plan.places, *more):
        config.preopen_dir(folder, name, True)
    store.set_wasi(config)
    return store


def exit_code(run: Callable[[], object]) -> int:
    """Run a guest and return its exit code."""
    try:
        run()
    except GuestExit as end:
        return end.code
    return 0


def _check(plan: BootPlan, engine: wasmtime.Engine, compiled: bytearray, folder: str) -> None:
    """Run a program in two instances of the image; raises ``NotBootable`` unless it finds what a new process would."""
    with open(os.path.join(folder, "check.py"), "w") as file:
        file.write(_CHECK)
    module = wasmtime.Module.deserialize(engine, compiled)
    drawn = set[str]()
    for _ in range(2):
        store = make_store(plan, engine, folder, spares=False)
        exports = make_linker(engine).instantiate(store, module).exports(store)
        memory = exports["memory"]
        assert isinstance(memory, wasmtime.Memory)
        image = ImageEntry(Entered(memory, store), exports[TABLE], plan.facts)
        image.name_mounts(["/m0"])
        argv, env = ["python", "/box/check.py", "a", "b c"], {"CHECK": "given"}
        code = exit_code(functools.partial(image.run_program, argv, env))
        with open(os.path.join(folder, "checked")) as text, open(os.path.join(folder, "drawn")) as number:
            told = text.read()
            drawn.add(number.read())
        if code != 5 or not told.startswith("['a', 'b c'] given [") or "check.py" not in told:
            raise NotBootable(f"a program in the image ended with {code} and found {told[:200]!r}")
    if len(drawn) != 2:
        raise NotBootable("two programs in the image drew the same random number")


#: How many words an interrupt sets.
COUNT = 4
_PIECE = 4096
_CLOCKS = {0: time.time_ns, 1: time.monotonic_ns}


class WatchedClock:
    """The clock of a guest; ``on_call`` is called each time that the guest asks for the time."""

    def __init__(self, linker: wasmtime.Linker) -> None:
        self.on_call: Callable[[wasmtime.Memory, wasmtime.Caller], None] | None = None
        i32, i64 = wasmtime.ValType.i32(), wasmtime.ValType.i64()
        kind = wasmtime.FuncType([i32, i64, i32], [i32])
        linker.define_func(WASI, "clock_time_get", kind, self._time, access_caller=True)

    def _time(self, caller: wasmtime.Caller, clock: int, _precision: int, at: int) -> int:
        memory = caller["memory"]
        assert isinstance(memory, wasmtime.Memory)
        if self.on_call is not None:
            self.on_call(memory, caller)
        now = _CLOCKS.get(clock, time.process_time_ns)()
        memory.write(caller, now.to_bytes(8, "little"), at & 0xFFFFFFFF)
        return 0


def words_that_became_one(before: bytes, after: bytes) -> set[int]:
    """Return the addresses of the words that were 0 and are 1."""
    found = set()
    for start in range(0, min(len(before), len(after)), _PIECE):
        old, new = before[start : start + _PIECE], after[start : start + _PIECE]
        if old != new:
            pairs = zip(struct.iter_unpack("<I", old), struct.iter_unpack("<I", new), strict=True)
            found |= {start + 4 * place for place, pair in enumerate(pairs) if pair == ((0,), (1,))}
    return found


def find_words(clock: WatchedClock, probe: Callable[[], object], rounds: int = 4) -> set[int]:
    """Return the words that every interrupt sets.

    Args:
        clock: The clock of the guest.
        probe: Makes the guest call the clock, interrupt itself, and call the clock again.
        rounds: How often to try; what is in use by chance differs from one to the next.

    """
    common: set[int] | None = None
    for _ in range(rounds):
        seen: list[bytes] = []

        def look(memory: wasmtime.Memory, caller: wasmtime.Caller, seen: list[bytes] = seen) -> None:
            seen.append(bytes(memory.read(caller, 0, memory.data_len(caller))))

        clock.on_call = look
        probe()
        clock.on_call = None
        if len(seen) != 2:
            return set()
        found = words_that_became_one(*seen)
        common = found if common is None else common & found
    return common or set()


def set_words(clock: WatchedClock, words: set[int], call: Callable[[], object]) -> None:
    """Call a function of the guest, and write an interrupt when it asks for the time."""

    def write(memory: wasmtime.Memory, caller: wasmtime.Caller) -> None:
        for word in words:
            memory.write(caller, (1).to_bytes(4, "little"), word)

    clock.on_call = write
    call()
    clock.on_call = None


def load_packages(plan: PackagesPlan) -> GuestEnding:
    """Import packages into an image; writes the memory to ``plan.out``, what could not be imported to ``plan.report``.

    The code of the packages runs here, in a jail, as it would in a program. Runs map the memory in place of the image's
    own; nothing is compiled again.
    """
    try:
        guest = PythonGuest(GuestPlan(module=plan.module, facts=plan.facts, switches=plan.switches))
        guest.read_record().name_mounts(guest.give(plan.preopens))
        if not guest.call("load", plan.path, plan.modules):
            return GuestEnding(end="invalid", message="the packages did not let Python go on after their import")
    except GuestExit as end:
        return GuestEnding(end="invalid", message=f"a package ended Python with {end.code} when it was imported")
    except wasmtime.Trap as trap:
        return GuestEnding(end="invalid", message=describe_trap(trap))
    except wasmtime.WasmtimeError as error:
        return GuestEnding(end="invalid", message=describe_error(error))
    if opened := guest.wasi.open_files():
        return GuestEnding(end="invalid", message=f"a package left files open when it was imported: {opened[0]}")
    problem = write_memory(guest, plan.out).get("problem")
    if problem is not None:
        return GuestEnding(end="invalid", message=f"the memory with the packages could not be written: {problem}")
    failed = guest.told.get("failed")
    with open(plan.report, "w") as file:
        json.dump({"failed": [str(name)[:200] for name in failed] if isinstance(failed, list) else []}, file)
    return GuestEnding(end="compiled", memory_bytes=0)
