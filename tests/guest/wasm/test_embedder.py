import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.guest.wasm.embedder import JavaScriptHost
from sandbox_kernel.guest.wasm.guest_files import Folders
from sandbox_kernel.guest.wasm.plan import Preopen


@pytest.fixture
def host(tmp_path: Path) -> JavaScriptHost:
    return JavaScriptHost(Folders([Preopen(host=str(tmp_path), guest="/box", writable=True)]))


def error(answer: str) -> dict[str, str]:
    assert answer[0] == "E"
    found: dict[str, str] = json.loads(answer[1:])
    return found


def test_files_go_out_and_in_as_text_and_as_bytes(host: JavaScriptHost) -> None:
    assert host.answer(["store", "a", "", "text", "é"]) == "V"
    assert host.answer(["read", "a", "text"]) == "Vé"
    assert host.answer(["read", "a", "bytes"]) == "V\xc3\xa9"
    assert json.loads(host.answer(["stat", "a"])[1:])["size"] == 2
    assert json.loads(host.answer(["list", "."])[1:]) == ["a"]


def test_errors_are_answers_with_the_code_that_node_gives(host: JavaScriptHost) -> None:
    assert error(host.answer(["read", "none", "text"])) == {
        "code": "ENOENT",
        "message": "no such file or directory",
        "path": "none",
    }
    assert error(host.answer(["unheard-of"]))["code"] == "ENOSYS"
    assert error(host.answer(["read"]))["code"] == "ENOSYS"
    assert error(host.answer(["decode", "\xff", "utf-8", "1"]))["code"] == "ERR_INVALID_ARG_VALUE"
    assert error(host.answer(["decode", "x", "klingon", ""]))["code"] == "ERR_INVALID_ARG_VALUE"


def test_an_archive_is_unpacked_within_bounds(host: JavaScriptHost, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = host.answer(["gzip", "hello", "6"])[1:]
    assert gzip.decompress(packed.encode("latin-1")) == b"hello"
    assert host.answer(["gunzip", packed, ""]) == "Vhello"
    monkeypatch.setattr("sandbox_kernel.guest.wasm.embedder._MOST_UNPACKED", 1000)
    bomb = gzip.compress(bytes(100_000)).decode("latin-1")
    assert "more than 1000 bytes" in error(host.answer(["gunzip", bomb, ""]))["message"]
    assert error(host.answer(["gunzip", "no archive", ""]))["code"] == "EIO"


def test_known_digests_are_computed_and_unknown_ones_are_named(host: JavaScriptHost) -> None:
    assert host.answer(["digest", "sha256", "hello"])[1:].encode("latin-1").hex().startswith("2cf24dba")
    assert error(host.answer(["digest", "md4", ""]))["message"] == "there is no digest md4"


def test_the_clock_goes_on_where_it_was_told(host: JavaScriptHost) -> None:
    host.set_elapsed(100.0)
    assert float(host.answer(["now"])[1:]) >= 100_000


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5))
def test_any_request_gets_an_answer(request: list[str]) -> None:
    if request[0] in ("line", "stdin", "print"):
        return
    answer = JavaScriptHost(Folders([])).answer(request)
    assert answer[0] in "VE"
