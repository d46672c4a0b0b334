import base64
import contextlib

import pytest
import wasmtime
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.backends.wasm.wasm_backend import MAGIC, WasmSource, read_source
from sandbox_kernel.errors import InvalidRequest

MODULE = bytes(wasmtime.wat2wasm("(module (func))"))


@pytest.mark.parametrize("code", ["(module)", "  \n(module)", ";; a comment\n(module)", "(; block ;) (module)"])
def test_text_is_recognised_whatever_stands_before_the_first_bracket(code: str) -> None:
    assert read_source(code) == WasmSource(code.encode(), text=True)
    assert read_source(code.encode()) == WasmSource(code.encode(), text=True)


def test_bytes_of_a_module_are_taken_as_they_are() -> None:
    assert read_source(MODULE) == WasmSource(MODULE, text=False)


def test_base64_is_decoded_in_every_usual_form() -> None:
    plain = base64.b64encode(MODULE).decode()
    lines = "\n".join(plain[i : i + 8] for i in range(0, len(plain), 8))
    forms = [plain, lines, f"  {plain}\n", plain.rstrip("="), f"data:application/wasm;base64,{plain}"]
    forms.append(base64.urlsafe_b64encode(MODULE).decode())
    for form in forms:
        assert read_source(form) == WasmSource(MODULE, text=False)
        assert read_source(form.encode()) == WasmSource(MODULE, text=False)


@pytest.mark.attack("W01", "wasm")
@given(st.binary(max_size=200))
def test_base64_of_any_module_comes_back(rest: bytes) -> None:
    data = MAGIC + b"\x01\0\0\0" + rest
    assert read_source(base64.b64encode(data).decode()) == WasmSource(data, text=False)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("this is not wasm", "'this is not wasm'"),
        ("AGFzbQEAAAA$$$", "Only base64 data is allowed"),
        ("AGFzbQEAAAAAA", "damaged"),
        (b"\x7fELF\x02\x01", "native code"),
        (b"\xff\xfe\xfd", "ff fe fd"),
        (b"a\0b", "61 00 62"),
        (b"MZ\x90\x00", "not WebAssembly"),
    ],
)
def test_what_is_no_module_is_refused_with_the_accepted_forms(code: str | bytes, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words.replace("$", r"\$")):
        read_source(code)


@pytest.mark.attack("W01", "wasm")
@given(st.one_of(st.binary(min_size=1, max_size=60), st.text(min_size=1, max_size=60)))
def test_anything_is_a_source_or_an_invalid_request(code: str | bytes) -> None:
    with contextlib.suppress(InvalidRequest):
        read_source(code if isinstance(code, bytes) else code.encode("utf-8", "replace").decode())
