"""Reads and writes the kernel's files of a control group."""

from __future__ import annotations

import os


def read(path: str) -> str:
    """Return the content of a file."""
    # Called before and after each cell: a buffered text file would take twice as long.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(fd, 1 << 16), b"")).decode()
    finally:
        os.close(fd)


def write(path: str, text: str) -> None:
    """Write a text with a single write call, as the kernel requires."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _read_counters(path: str) -> bytes:
    """Return the content of a file that the kernel writes as one piece, so that one read returns it whole."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1 << 16)
    finally:
        os.close(fd)


def number(path: str) -> int | None:
    """Return the number in a file; None if there is none."""
    try:
        return int(_read_counters(path))
    except (OSError, ValueError):
        return None


def table(path: str) -> dict[str, int]:
    """Return names and numbers from a file; empty if there is no such file."""
    try:
        words = _read_counters(path).decode().split()
    except OSError:
        return {}
    # Each line is a name and a number; a limit may be the word ``max``.
    return {name: int(value) for name, value in zip(words[::2], words[1::2], strict=False) if value.isdigit()}
