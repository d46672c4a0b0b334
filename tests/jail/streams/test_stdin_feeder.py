"""Standard input of any size is written as the child takes it, and a child that does not want it is fine."""

from __future__ import annotations

import os

import pytest

from sandbox_kernel.jail.streams import Feeder


@pytest.fixture
def pipe() -> tuple[int, int]:
    return os.pipe()


def test_input_of_any_size_is_written_as_it_is_taken(pipe: tuple[int, int]) -> None:
    read, write = pipe
    data = os.urandom(3 << 20)
    feeder, got = Feeder(write, data), b""
    while feeder.write_some():
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


def test_a_reader_that_went_away_is_no_error(pipe: tuple[int, int]) -> None:
    read, write = pipe
    feeder = Feeder(write, b"x" * (4 << 20))
    os.close(read)
    assert feeder.write_some() is False
    assert not feeder.open
    feeder.close()


def test_a_reader_that_does_not_read_does_not_block(pipe: tuple[int, int]) -> None:
    read, write = pipe
    feeder = Feeder(write, b"x" * (4 << 20))
    assert feeder.write_some() is True
    assert feeder.write_some() is True
    feeder.close()
    feeder.close()
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
    assert feeder.write_some() is False
    assert (feeder.open, feeder.idle) == (False, False)
