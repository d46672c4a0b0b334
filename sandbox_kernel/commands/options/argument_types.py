"""Converts the values of options. For a wrong value argparse prints the message together with the option."""

from __future__ import annotations

import argparse

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.notebook.options.units import parse_duration, parse_megabytes


def duration(text: str) -> float:
    """Return seconds from text like ``500ms``, ``5s`` or ``2m``."""
    try:
        return parse_duration(text, "duration")
    except InvalidRequest as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def megabytes(text: str) -> int:
    """Return MB from text like ``64M``, ``1G`` or ``512K``."""
    try:
        return parse_megabytes(text, "size")
    except InvalidRequest as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def names(text: str) -> list[str]:
    """Return areas or lines of the report from text like ``memory,network``."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} must be areas or lines of the report like memory,network")
    return found
