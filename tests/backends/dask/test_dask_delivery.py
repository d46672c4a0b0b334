"""What a worker of a cluster sends back, read as if it lied: a delivery, an error of ours, or a backend that is not there."""

from __future__ import annotations

import json
import struct
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.backends.base import BackendCapabilities, EnforcedLimits, Enforcement
from sandbox_kernel.backends.dask.dask_delivery import (
    Delivery,
    decode_capabilities,
    decode_delivery,
    encode_capabilities,
    encode_delivery,
    encode_error,
)
from sandbox_kernel.errors import BackendUnavailable, EnforcerFailed, InvalidRequest, SandboxError
from sandbox_kernel.languages.recipe import Availability
from sandbox_kernel.model import ExecRequest, ExecResult, FsChange, Language, Status, Violation
from sandbox_kernel.workspace.tree.walk import Entry

REQUEST = ExecRequest(language=Language.PYTHON, code="1", timeout=7, memory_limit_mb=99)
RESULT = ExecResult(
    stdout="out é",
    stderr="err",
    exit_code=3,
    duration=1.5,
    status=Status.FAILED,
    limit="output",
    violations=(Violation(rule="r", subject="s", reason="because", remedy="do"),),
    stdout_bytes=6,
    stderr_bytes=3,
    cpu_seconds=0.5,
    changes=(FsChange(path="a/b", kind="created", size=3), FsChange(path="\udcff", kind="created", size=1)),
    language="python",
    backend="dask",
    isolation="process+sandbox",
    timeout=7.0,
    memory_limit_mb=99,
    notes=("a note",),
)
GOOD = Delivery(RESULT, {"a/b": b"abc", "\udcff": b"x"}, 4)
CHANGED = Delivery(
    RESULT,
    {},
    4,
    (
        Entry("a", "directory", mode=0o750, data=b""),
        Entry("a/b", "file", mode=0o755, data=b"abc"),
        Entry("link", "symlink", mode=0o777, target="../x", data=b""),
        Entry("old", "gone", data=b""),
    ),
)


def header(data: bytes) -> tuple[dict[str, object], bytes]:
    (size,) = struct.unpack(">I", data[:4])
    return json.loads(data[4 : 4 + size]), data[4 + size :]


def packed(found: object, rest: bytes = b"") -> bytes:
    text = json.dumps(found).encode()
    return struct.pack(">I", len(text)) + text + rest


def test_a_delivery_arrives_as_it_was_sent() -> None:
    assert decode_delivery(encode_delivery(GOOD), REQUEST) == GOOD
    assert decode_delivery(encode_delivery(CHANGED), REQUEST) == CHANGED


@pytest.mark.parametrize(
    "entry",
    [
        ["../b", "file", 0o644, None, 3],
        ["/b", "file", 0o644, None, 3],
        ["b\0", "file", 0o644, None, 3],
        ["b", "socket", 0o644, None, 3],
        ["b", "directory", 0o755, None, 3],
        ["b", "file", 0o4755, None, 3],
        ["b", "file", 0o644, "x", 3],
        ["b", "file", 0o644, None, 2],
        ["b", "file", 0o644, None],
    ],
    ids=str,
)
def test_a_change_that_no_program_can_make_is_refused(entry: list[object]) -> None:
    found, rest = header(encode_delivery(CHANGED))
    with pytest.raises(BackendUnavailable, match="sent an invalid answer"):
        decode_delivery(packed({**found, "changed": [entry]}, rest), REQUEST)


def test_limits_and_language_are_those_of_the_request_whatever_a_worker_says() -> None:
    told = replace(RESULT, timeout=1000.0, memory_limit_mb=1, language="c", backend="process", rolled_back=True)
    assert decode_delivery(encode_delivery(replace(GOOD, result=told)), REQUEST) == GOOD


@pytest.mark.parametrize("error", [InvalidRequest("bad"), EnforcerFailed("bubblewrap", "fell")])
def test_errors_of_ours_keep_their_type_and_their_words(error: SandboxError) -> None:
    with pytest.raises(type(error)) as caught:
        decode_delivery(encode_error(error), REQUEST)
    assert str(caught.value) == str(error)


def test_capabilities_arrive_as_they_were_sent() -> None:
    found = BackendCapabilities(
        supported_languages=(Language.PYTHON,),
        isolation_class="process+sandbox",
        enforced_limits=EnforcedLimits(memory=Enforcement(True, "cgroup", "seen")),
        languages={Language.C: Availability(available=False, reason="none", remedy="install")},
    )
    assert decode_capabilities(encode_capabilities(found)) == found


@pytest.mark.parametrize(
    "data",
    [
        None,
        5,
        "text",
        RESULT,
        [b"x"],
        b"",
        b"\0\0\0",
        b"\xff\xff\xff\xff",
        packed([]),
        packed(None),
        packed({}),
        packed({"error": "SystemExit", "told": ["x"]}),
        packed({"error": "EnforcerFailed", "told": ["x"]}),
        packed({"error": "InvalidRequest", "told": [5]}),
        packed({"result": [[]] * 400_000}),
        struct.pack(">I", 100_000) + b"[" * 100_000,
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_delivery_is_a_backend_that_is_not_there(data: object) -> None:
    for decode in (lambda given: decode_delivery(given, REQUEST), decode_capabilities):
        with pytest.raises(BackendUnavailable, match="sent an invalid answer"):
            decode(data)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("status", "fine"), ("isolation", "virtual machine"), ("exit_code", -1), ("exit_code", True),
        ("duration", float("nan")), ("duration", -1), ("stdout_bytes", 1 << 80), ("notes", "text"), ("notes", [5]),
        ("changes", [{}]), ("changes", [{"path": "a", "kind": "eaten", "type": "file", "size": 1, "renamed_from": None}]),
        ("violations", [{"rule": 1}]), ("limit", ["memory"]), ("stdout_truncated", 1),
    ],
)  # fmt: skip
def test_a_result_with_one_wrong_field_is_refused(key: str, value: object) -> None:
    found, rest = header(encode_delivery(GOOD))
    changed = {**found, "result": {**found["result"], key: value}}  # type: ignore[dict-item]
    with pytest.raises(BackendUnavailable, match="sent an invalid answer"):
        decode_delivery(packed(changed, rest), REQUEST)


@pytest.mark.parametrize(
    "change",
    [
        {"files": [["other", 3], ["a/b", 1]]},
        {"files": [["../b", 3], ["a/b", 1]]},
        {"files": [["a/b", 4], ["\udcff", 1]]},
        {"files": [["a/b", 1 << 62]]},
        {"files": [["a/b", -1]]},
        {"texts": [1]},
        {"texts": [10**9, 3]},
        {"pieces": -1},
        {"pieces": None},
    ],
    ids=str,
)
def test_files_and_sizes_that_do_not_fit_are_refused(change: dict[str, object]) -> None:
    found, rest = header(encode_delivery(GOOD))
    with pytest.raises(BackendUnavailable, match="sent an invalid answer"):
        decode_delivery(packed({**found, **change}, rest), REQUEST)


@settings(derandomize=True, deadline=None, max_examples=300, database=None)
@given(st.data())
@pytest.mark.slow
def test_a_damaged_delivery_is_a_delivery_or_an_error_of_ours(data: st.DataObject) -> None:
    sent = bytearray(encode_delivery(GOOD))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(sent) - 1))
        sent[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        sent = sent or bytearray(b"x")
    try:
        assert isinstance(decode_delivery(bytes(sent), REQUEST), Delivery)
    except BackendUnavailable:
        pass
