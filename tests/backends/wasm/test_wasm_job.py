import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.backends.wasm.wasm_job import WasmEnding, read_report


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def test_a_report_is_read() -> None:
    found = read_report(line(end="exit", code=3, message="m", fuel_used=5, memory_bytes=65536, refused=1))
    assert found == WasmEnding(end="exit", code=3, message="m", fuel_used=5, memory_bytes=65536, refused=1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"end": "exit", "code": 0}',
        b"nonsense\n",
        b"[1]\n",
        b"null\n",
        b"[" * 60000 + b"\n",
        line(end="victory"),
        line(end="exit"),
        line(end="exit", code="0"),
        line(end="exit", code=True),
        line(end="exit", code=1 << 70),
        line(end=["exit"], code=0),
        line(end="trap", fuel_used="many"),
        line(end="trap", memory_bytes=-1.5),
    ],
)
def test_what_is_no_report_is_none(data: bytes) -> None:
    assert read_report(data) is None


def test_a_long_message_is_cut() -> None:
    found = read_report(line(end="trap", message="x" * 100_000, more="fields"))
    assert found is not None and len(found.message) == 8000


@given(st.binary(max_size=200))
def test_any_bytes_are_a_report_or_none(data: bytes) -> None:
    assert read_report(data + b"\n") is None or isinstance(read_report(data + b"\n"), WasmEnding)
