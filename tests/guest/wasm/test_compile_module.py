import os
import random
import re
import stat
from collections.abc import Callable

import pytest
import wasmtime

from sandbox_kernel.guest.wasm import binary as binary

Wat = Callable[..., str]
HEADER = b"\0asm\x01\0\0\0"


def test_a_good_module_is_compiled_into_a_private_file(wasm, wat: Wat) -> None:
    done, out = wasm.compile(wat(""))
    assert done.end == "compiled"
    assert stat.S_IMODE(os.stat(out).st_mode) == 0o600


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("this is not wat", r"expected `\(`"),
        ('(module (func (export "_start") (nonsense)))', "nonsense"),
        ("(module", r"expected `\)`"),
        (b"garbage", "does not begin with"),
        (b"\0asm", "version missing"),
        (HEADER, "exports no _start"),
        (HEADER + os.urandom(1000), ""),
        ("(component)", "component"),
        ('(module (func (export "main")))', "exports no _start function.*'main'"),
        ('(module (memory (export "_start") 1))', "exports no _start function"),
        ('(module (func (export "_start") (drop (i64.const 1)) (i32.add)))', "type mismatch"),
        ('(module (import "env" "missing" (func)) (func (export "_start")))', "env::missing"),
        ('(module (import "wasi_snapshot_preview1" "nope" (func)) (func (export "_start")))', "nope"),
        ('(module (import "wasi_snapshot_preview1" "proc_exit" (func)) (func (export "_start")))', "incompatible"),
        ('(module (import "wasi_unstable" "proc_exit" (func (param i32))) (func (export "_start")))', "wasi_unstable"),
        ('(module (memory i64 1) (func (export "_start")))', "switched off"),
        ('(module (memory 1 2 shared) (func (export "_start")))', "switched off"),
        ('(module (memory 1) (memory 1) (func (export "_start")))', "2 memories"),
        ('(module (type (struct (field i32))) (func (export "_start")))', "gc"),
        ('(module (tag) (func (export "_start") (throw 0)))', "exceptions"),
        ('(module (memory 65537) (func (export "_start")))', "a smaller memory"),
        ('(module (table 1000000000 funcref) (func (export "_start")))', "make it smaller"),
    ],
)
def test_what_cannot_run_is_invalid_with_the_reason(wasm, code: str | bytes, words: str) -> None:
    done, out = wasm.compile(code)
    assert done.end == "invalid"
    assert re.search(words, done.message, re.DOTALL), done.message
    assert not out.exists()


def test_random_mutations_of_a_module_are_compiled_or_invalid(wasm, wat: Wat) -> None:
    rng = random.Random(7)
    good = bytes(wasmtime.wat2wasm(wat("(drop (memory.grow (i32.const 1))) (block (loop (br_if 1 (i32.const 1))))")))
    endings = set()
    for _ in range(300):
        data = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(8, len(data))] = rng.randrange(256)
        endings.add(wasm.compile(bytes(data))[0].end)
    assert endings <= {"compiled", "invalid", "memory"}
    assert "invalid" in endings


def test_a_module_that_starts_above_the_memory_limit_is_a_memory_ending(wasm, wat: Wat) -> None:
    done = wasm.run(wat("", memory="65536"), memory_bytes=1 << 20)
    assert done.end == "memory" and "let it start with less" in done.message


def test_a_module_of_the_catalogue_may_be_a_reactor_with_other_imports(wasm) -> None:
    done, _ = wasm.compile('(module (import "env" "host_call" (func)) (func (export "qjs_eval")))', trusted=True)
    assert done.end == "compiled"


def test_the_compile_step_started_by_path_reports_like_the_function(wasm, tmp_path) -> None:
    source = tmp_path / "bad.wasm"
    source.write_bytes(b"garbage")
    task = {"task": "compile", "source": str(source), "out": str(tmp_path / "out")}
    done = wasm.report(*wasm.start(task))
    assert (done.end, done.returncode) == ("invalid", 134)


def _module(body: bytes) -> bytes:
    """A module with one memory and one function, _start, whose code is ``body``."""
    code = bytes([len(body) + 1, 0]) + body
    return binary.assemble([
        (binary.TYPE, bytes([1, 0x60, 0, 0])),
        (binary.FUNCTION, bytes([1, 0])),
        (binary.MEMORY, bytes([1, 0, 1])),
        (binary.EXPORT, bytes([2, 6]) + b"_start" + bytes([0, 0, 6]) + b"memory" + bytes([2, 0])),
        (binary.CODE, bytes([1]) + code),
    ])  # fmt: skip


GROW = bytes([0x41, 0x01, 0x40, 0x00, 0x1A])  # (drop (memory.grow (i32.const 1)))


@pytest.mark.attack("W01", "wasm")
@pytest.mark.parametrize(
    "body",
    [
        GROW + bytes([0x41, 0, 0x24, 0, 0x0B]),
        GROW + bytes([0x23, 0, 0x1A, 0x0B]),
        GROW + bytes([0x41, 1, 0x10, 1, 0x1A, 0x0B]),
        bytes([0x41, 1, 0x40, 0x40, 0x1A]) + GROW + bytes([0x0B]),
    ],
    ids=["sets the counter", "reads the counter", "calls the added function", "grows a memory that is not there"],
)
def test_a_module_that_is_only_valid_with_what_is_added_to_it_is_refused(wasm, body: bytes) -> None:
    assert wasm.compile(_module(GROW + b"\x0b"))[0].end == "compiled"
    done, _ = wasm.compile(_module(body))
    assert done.end == "invalid", done


def test_a_million_empty_sections_are_refused_after_the_first_thousands(wasm) -> None:
    done, _ = wasm.compile(HEADER + b"\0\0" * 1_000_000)
    assert (done.end, done.message) == ("invalid", "more than 10000 sections")
