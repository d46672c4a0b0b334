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


def number(path: str) -> int | None:
    """Return the number in a file; None if there is none."""
    try:
        return int(read(path))
    except (OSError, ValueError):
        return None


def table(path: str) -> dict[str, int]:
    """Return names and numbers from a file; empty if there is no such file."""
    try:
        rows = [line.split() for line in read(path).splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
