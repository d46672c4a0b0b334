"""Checks for the ``stdin`` and ``files`` arguments of runs, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import BinaryIO

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import quoted


def split_input(stdin: str | bytes | BinaryIO | None) -> tuple[str | bytes | None, int | None]:
    """Split ``stdin`` into ``(text or bytes, file descriptor)``; at least one of the two is None."""
    if stdin is None or isinstance(stdin, str | bytes):
        return stdin, None
    try:
        return None, stdin.fileno()
    except (AttributeError, OSError, ValueError):
        raise InvalidRequest(
            f"stdin must be text, bytes or a file that is open for reading bytes, got {quoted(stdin)}"
        ) from None


def named_files(files: Mapping[str, bytes | str] | None) -> Mapping[str, bytes | str]:
    """Return ``files`` as a mapping of paths in /box to contents; empty for None."""
    if files is not None and not isinstance(files, Mapping):
        raise InvalidRequest(f"files must be a mapping of names to contents, got {quoted(files)}")
    return files or {}
