import contextlib
import random
from collections.abc import Callable

import pytest
import wasmtime

from sandbox_kernel.guest.wasm.binary import Caps, Malformed, assemble, inspect, unsigned

GOOD = bytes(
    wasmtime.wat2wasm(
        """(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (import "env" "g" (global $g i32)) (memory (export "memory") 2 9) (table 3 funcref)
        (func $s) (start $s) (func $f (export "_start") (local i32 i64) (block (loop (if (i32.const 0) (then)))))
        (elem (i32.const 0) func $f) (data (i32.const 0) "x"))"""
    )
)
HEADER = b"\0asm\x01\0\0\0"


def code_module(*bodies: bytes) -> bytes:
    """A module of one type (no parameters, no results) and these function bodies, each with its locals."""
    return assemble(
        [
            (1, b"\x01\x60\0\0"),
            (3, unsigned(len(bodies)) + b"\0" * len(bodies)),
            (10, unsigned(len(bodies)) + b"".join(unsigned(len(b)) + b for b in bodies)),
        ]
    )


def test_the_facts_of_a_module() -> None:
    facts = inspect(GOOD, Caps())
    assert [(i.module, i.name, i.kind) for i in facts.imports] == [
        ("wasi_snapshot_preview1", "proc_exit", "func"),
        ("env", "g", "global"),
    ]
    assert (facts.functions, facts.start) == (2, 1)
    assert facts.exports == {"memory": ("memory", 0), "_start": ("func", 2)}
    assert (facts.imported_functions, facts.imported_globals) == (1, 1)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "does not begin"),
        (b"nope", "does not begin"),
        (b"\x7fELF", "does not begin"),
        (b"\0asm", "version missing"),
        (b"\0asm\x02\0\0\0", "version 02 00 00 00"),
        (b"\0asm\x0d\0\x01\0", "component"),
        (HEADER + b"\x01", "unexpected end"),
        (HEADER + b"\x01\x05", "announced"),
        (HEADER + b"\x01\xff\xff\xff\xff\xff\xff", "longer than 32 bits"),
        (HEADER + b"\x01\xff\xff\xff\xff\x1f", "longer than 32 bits"),
        (HEADER + b"\x63\0", "unknown section 99"),
        (HEADER + b"\x03\x01\0\x01\x01\0", "out of order"),
        (HEADER + b"\x01\x01\0\x01\x01\0", "repeated"),
        (HEADER + b"\x05\x03\x01\x04\0", "switched off"),
        (HEADER + b"\x05\x03\x01\x02\0", "switched off"),
        (HEADER + b"\x02\x05\x01\x02\xff\xfe\0", "not UTF-8"),
        (HEADER + b"\x03\x02\x01\0", "1 functions are declared and 0 have a body"),
    ],
)
def test_broken_bytes_are_refused_with_the_reason(data: bytes, words: str) -> None:
    with pytest.raises(Malformed, match=words):
        inspect(data, Caps())


def test_every_truncation_of_a_good_module_is_refused_or_smaller() -> None:
    whole = inspect(GOOD, Caps())
    for cut in range(len(GOOD)):
        try:
            facts = inspect(GOOD[:cut], Caps())
        except Malformed:
            continue
        assert len(facts.sections) < len(whole.sections)


def test_ten_thousand_mutations_never_do_more_than_be_refused() -> None:
    rng = random.Random(20261115)
    for _ in range(10_000):
        data = bytearray(GOOD)
        for _ in range(rng.randint(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(Malformed):
            inspect(bytes(data[: rng.randint(8, len(data))]), Caps())


@pytest.mark.parametrize(
    ("section", "what"), [(1, "types"), (2, "imports"), (4, "tables"), (6, "globals"), (7, "exports"), (11, "data seg")]
)
def test_counts_beyond_the_caps_are_refused_before_anything_is_read(section: int, what: str) -> None:
    with pytest.raises(Malformed, match=what):
        inspect(assemble([(section, unsigned(0xFFFFFFFF))]), Caps())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: code_module(*[b"\0\x0b"] * 300_000), "300000 functions; at most 60000"),
        (lambda: assemble([(5, b"\x02\0\x01\0\x01")]), "2 memories; at most 1"),
        (lambda: assemble([(4, b"\x01\x70\0" + unsigned(10_000_000))]), "10000000 elements"),
        (lambda: code_module(b"\0" + b"\x01" * 600_000 + b"\x0b"), "bytes of code"),
        (lambda: code_module(b"\x01" + unsigned(50_001) + b"\x7f\x0b"), "50001 local variables"),
        # An instruction of a proposal that is switched off, where the walk meets it.
        (lambda: code_module(b"\0" + b"\x02\x40\x0b" * 6_000 + b"\xfe\0\0\0\x0b"), "0xfe"),
    ],
)
def test_a_module_beyond_the_caps_is_refused_with_what_there_is_too_much_of(
    make: Callable[[], bytes], words: str
) -> None:
    with pytest.raises(Malformed, match=words):
        inspect(make(), Caps())


def test_deep_nesting_is_refused_and_wide_is_not() -> None:
    deep = b"\0" + b"\x02\x40" * 6_000 + b"\x0b" * 6_001
    with pytest.raises(Malformed, match="nests more than 5000 blocks"):
        inspect(code_module(deep), Caps())
    wide = b"\0" + b"\x02\x40\x0b" * 6_000 + b"\x0b"
    assert inspect(code_module(wide), Caps()).functions == 1
