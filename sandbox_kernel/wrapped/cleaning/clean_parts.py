"""Cleans the parts of messages that several kinds share: headers, errors, MIME bundles, short texts. Pure functions.

The input comes from a hostile kernel and may be any JSON value.
"""

from __future__ import annotations

from collections.abc import Mapping

from sandbox_kernel.ground.visible import one_line
from sandbox_kernel.notebook.render import name_of_program, told_apart
from sandbox_kernel.receipt import unmarked
from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.ansi import few_colours
from sandbox_kernel.untrusted.frames.frame_output import LIBRARY
from sandbox_kernel.untrusted.frames.framed_bundle import sanitize_display
from sandbox_kernel.untrusted.json_value import check_json, encodable
from sandbox_kernel.untrusted.sanitize import safe_text, sanitize_bundle

Table = dict[str, object]

_HEADER = frozenset(("msg_id", "msg_type", "username", "session", "date", "version", "subshell_id"))
_MAX_FIELD, _MAX_VALUE, _MAX_TRACEBACK = 200, 20_000, 500


class MalformedMessage(Exception):
    """A message that the protocol does not allow. It is dropped and counted."""


def table(value: object) -> Table:
    """Return a JSON object, or raise ``MalformedMessage``."""
    if not isinstance(value, dict):
        raise MalformedMessage
    return value


def header(value: Mapping[str, object]) -> Table:
    """Return the known fields of a header. Raises ``MalformedMessage`` if one is not a short text."""
    found: Table = {}
    for name, field in value.items():
        if field is None or name not in _HEADER:
            continue
        if not isinstance(field, str) or len(field) > _MAX_FIELD or not field.isprintable():
            raise MalformedMessage
        found[name] = field
    return found


def metadata(value: Mapping[str, object]) -> Table:
    """Return the metadata of a message; empty when it is too large or no JSON."""
    if not value:
        return {}
    try:
        return table(check_json(value))
    except ContentRefused:
        return {}


def text(value: object, limit: int = _MAX_VALUE) -> str:
    """Return text with its colours, without our mark and other escape sequences, cut at ``limit`` characters."""
    try:
        return safe_text(value, limit)
    except ContentRefused:
        raise MalformedMessage from None


def line(value: object, limit: int = _MAX_FIELD) -> str:
    """Return text as one visible line; empty for anything else."""
    return one_line(unmarked(encodable(value)), limit) if isinstance(value, str) else ""


def count(value: object) -> int:
    """Return a number of cells, or raise ``MalformedMessage``."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise MalformedMessage
    return value


def error(content: Table) -> Table:
    """Return the three fields of an error. Its name is never that of one of our own errors."""
    lines = content.get("traceback", [])
    if not isinstance(lines, list):
        raise MalformedMessage
    name = line(content.get("ename", ""))
    return {
        "ename": name_of_program(name) if name else "",
        "evalue": text(content.get("evalue", "")),
        "traceback": few_colours([text(each) for each in lines[:_MAX_TRACEBACK]]),
    }


def bundle(content: Table) -> Table:
    """Return the data and metadata of a value after the cleaner, without frames."""
    clean = sanitize_bundle(content.get("data"), content.get("metadata"))
    return {"data": told_apart(clean.data), "metadata": dict(clean.metadata)}


def display(content: Table, gate: str) -> tuple[Table, tuple[str, ...], int]:
    """Return the data and metadata of a display after the cleaner, what was removed, in words, and a page's work."""
    clean = sanitize_display(content.get("data"), content.get("metadata"), gate)
    data = dict(clean.data) if LIBRARY in clean.data else told_apart(clean.data)
    return {"data": data, "metadata": dict(clean.metadata)}, clean.removed, clean.work
