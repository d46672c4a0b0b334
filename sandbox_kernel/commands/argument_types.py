"""What people write after an option, as values; a mistake is told by the parser, with the option that it stands at."""

from __future__ import annotations

import argparse

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.notebook.options.units import parse_duration, parse_megabytes


def duration(text: str) -> float:
    """Seconds from ``500ms``, ``5s``, ``2m``."""
    try:
        return parse_duration(text, "duration")
    except InvalidRequest as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def megabytes(text: str) -> int:
    """MB from ``64M``, ``1G``, ``512K``."""
    try:
        return parse_megabytes(text, "size")
    except InvalidRequest as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def names(text: str) -> list[str]:
    """Areas or lines of the report from ``memory,network``."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} must be areas or lines of the report like memory,network")
    return found
