"""Output is kept head and tail, cut at characters, handed on as it comes, and bounded whatever is printed."""

import contextlib
import os
import resource
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel import ExecRequest, Language, ProcessBackend, ProcessConfig
from sandbox_kernel.jail.rules.landlock import landlock_abi
from sandbox_kernel.jail.streams import CHUNK, NOTICE, Capture, Feeder, readable
from sandbox_kernel.session.open_session import open_session

quick = settings(deadline=None, max_examples=60)


def capture(cap: int, *parts: bytes) -> Capture:
    found = Capture(cap)
    for part in parts:
        found.feed(part)
    found.finish()
    return found


def notice(elided: int, cap: int) -> str:
    return NOTICE.format(elided=elided, cap=cap)


@pytest.mark.parametrize(
    ("cap", "parts", "text"),
    [
        (100, (b"hello ", b"world"), "hello world"),
        (12, (b"hello ", b"world!"), "hello world!"),
        (10, (), ""),
        (12, (b"abcdefghijklm",), "abcdefghi" + notice(1, 12) + "klm"),
        (1, (b"ab",), "a" + notice(1, 1)),
        (16, ("é".encode() * 20,), "é" * 6 + notice(24, 16) + "é" * 2),
        (100, (b"\xf0\x9f", b"\x98", b"\x80!"), "\U0001f600!"),
        (100, (b"a\xffb",), "a\ufffdb"),
        (100, (b"ab\xe2\x82",), "ab\ufffd"),
    ],
    ids=["below", "exact", "nothing", "one more", "one byte", "no half character", "split", "invalid", "unfinished"],
)
def test_head_and_tail_are_kept_cut_between_characters(cap: int, parts: tuple[bytes, ...], text: str) -> None:
    found = capture(cap, *parts)
    total = sum(map(len, parts))
    assert (found.text, found.total, found.truncated) == (text, total, total > cap)


def test_text_is_handed_on_as_it_comes_and_is_what_is_kept() -> None:
    heard: list[str] = []
    found = Capture(8, heard.append)
    found.feed(b"first")
    assert heard == ["first"]
    found.feed(b"second and more")
    assert heard == ["first", "s"]
    found.finish()
    assert "".join(heard) == found.text


@quick
@given(parts=st.lists(st.binary(max_size=50)), cap=st.integers(1, 200))
def test_what_is_kept_is_bounded_and_counted_whatever_comes(parts: list[bytes], cap: int) -> None:
    found = capture(cap, *parts)
    data = b"".join(parts)
    assert found.total == len(data)
    assert found.truncated == (len(data) > cap)
    if not found.truncated:
        assert found.text == data.decode("utf-8", "replace")
    else:
        assert len(found.text) <= cap + len(notice(len(data), cap))
        assert "bytes truncated" in found.text


@quick
@given(text=st.text(max_size=300), sizes=st.lists(st.integers(1, 7), min_size=1), cap=st.integers(8, 120))
def test_valid_text_never_shows_a_replacement_and_the_elided_bytes_add_up(
    text: str, sizes: list[int], cap: int
) -> None:
    data = text.replace("\ufffd", "").encode()
    parts, position = [], 0
    while position < len(data):
        size = sizes[len(parts) % len(sizes)]
        parts.append(data[position : position + size])
        position += size
    found = capture(cap, *parts)
    assert "\ufffd" not in found.text
    if found.truncated:
        elided = int(found.text.split("... (")[-1].split(" ")[0])
        kept = found.text.replace(notice(elided, cap), "")
        assert len(kept.encode()) + elided == len(data)
        head, tail = found.text.split(notice(elided, cap))
        assert data.startswith(head.encode()) and data.endswith(tail.encode())


def test_two_gigabytes_take_no_more_memory_than_the_cap() -> None:
    found = Capture(1 << 20)
    part = b"x" * CHUNK
    tracemalloc.start()
    try:
        for _ in range(2048):
            found.feed(part)
        found.finish()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.total == 2 << 30
    assert peak < 16 << 20


@pytest.fixture
def pipe() -> tuple[int, int]:
    return os.pipe()


def test_input_of_any_size_is_written_as_it_is_taken(pipe: tuple[int, int]) -> None:
    read, write = pipe
    data = os.urandom(3 << 20)
    feeder, got = Feeder(write, data), b""
    while feeder.open:
        feeder.write_some()
        got += os.read(read, 1 << 20)
    while part := os.read(read, 1 << 20):
        got += part
    os.close(read)
    assert got == data
    assert not feeder.open


def test_no_input_is_end_of_file_at_once(pipe: tuple[int, int]) -> None:
    read, write = pipe
    for nothing in (None, b""):
        feeder = Feeder(os.dup(write), nothing)
        assert not feeder.open
    os.close(write)
    assert os.read(read, 1) == b""
    os.close(read)


@pytest.mark.parametrize("gone", [True, False], ids=["it went away", "it does not read"])
def test_a_reader_that_went_away_is_no_error_and_one_that_does_not_read_does_not_block(
    pipe: tuple[int, int], gone: bool
) -> None:
    read, write = pipe
    feeder = Feeder(write, b"x" * (4 << 20))
    if gone:
        os.close(read)
    feeder.write_some()
    feeder.write_some()
    assert feeder.open is not gone
    feeder.close()
    feeder.close()
    if not gone:
        os.close(read)


def test_input_that_is_held_open_waits_for_more(pipe: tuple[int, int]) -> None:
    read, write = pipe
    feeder = Feeder(write, None, held=True)
    assert (feeder.open, feeder.idle) == (True, True)
    feeder.add(b"one\n")
    assert not feeder.idle
    feeder.write_some()
    assert (os.read(read, 100), feeder.idle) == (b"one\n", True)
    os.close(read)
    feeder.add(b"two\n")
    feeder.write_some()
    assert (feeder.open, feeder.idle) == (False, False)


_MANY = 1100


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * _MANY:
        pytest.skip("so many files cannot be opened here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * _MANY), hard))
    with contextlib.ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for _ in range(_MANY):
            held.callback(os.close, os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        yield


@pytest.mark.usefixtures("many_descriptors")
def test_a_descriptor_above_a_thousand_can_be_waited_for() -> None:
    read, write = os.pipe()
    try:
        assert read > 1024
        assert not readable(read, 0)
        os.write(write, b"x")
        assert readable(read, 0)
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.parametrize("enforcer", ["bubblewrap", *(["landlock"] if landlock_abi() else [])])
@pytest.mark.one_case
def test_runs_and_sessions_work_there(enforcer: str) -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0), enforcer=enforcer)
    assert backend.run(ExecRequest(language=Language.PYTHON, code="print(1)", timeout=30)).stdout == "1\n"
    with open_session(backend) as session:
        session.run("x = 1")
        assert session.run("while True: pass", timeout=0.2).rolled_back
        assert session.run("print(x)").stdout == "1\n"
