"""``%sandbox files``: lists the work folder with sizes, changes by the last cell, a preview and a download link.

Names and contents come from the sandbox and may be hostile: text is cut to one line without control characters, and a
picture is shown only if it has the format of its suffix. A link holds the bytes of the file, for saving: no server
serves the work folder, and the page never opens a file of it.
"""

from __future__ import annotations

import base64
import csv
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import islice

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.model import FsChange
from sandbox_kernel.notebook.render import ShowOutput, one_line
from sandbox_kernel.session.session import Session
from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.media import check_image
from sandbox_kernel.untrusted.tex import defused
from sandbox_kernel.workspace.tree.paths import display_name

MAX_ROWS = 200
#: Largest file that is read for a preview, and for how many files.
_GLIMPSE_BYTES = 256 << 10
_GLIMPSES = 40
_GLIMPSE_CHARACTERS = 60
#: Most bytes that all links together add to a notebook.
_LINK_BYTES = 2 << 20
_TABLES = {"csv": ",", "tsv": "\t"}
_TABLE_ROWS, _TABLE_COLUMNS, _TABLE_CHARACTERS = 5, 8, 24
_PICTURES = {"png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}

Read = Callable[[str], bytes]


@dataclass(frozen=True, kw_only=True)
class FileRow:
    """One file. ``picture`` is a ``data:`` URL of a checked picture, ``link`` a ``data:`` URL for saving the file."""

    name: str
    size: str
    change: str = ""
    text: str = ""
    picture: str = ""
    table: tuple[tuple[str, ...], ...] = ()
    link: str = ""


@dataclass(frozen=True, kw_only=True)
class _Glimpse:
    text: str = ""
    picture: str = ""
    table: tuple[tuple[str, ...], ...] = ()


def list_files(box: Sandbox, session: Session | None, last: Sequence[FsChange]) -> tuple[FileRow, ...]:
    """List the shared files, then those that only the session has because they are too large to share."""
    done = {change.path: change.kind for change in last}
    shared = {change.path: change for change in box.diff() if change.type == "file" and change.kind != "deleted"}
    rows, room = [], _LINK_BYTES
    for number, (path, change) in enumerate(sorted(shared.items())):
        data = _content(path, change.size or 0, box.read_file) if number < _GLIMPSES else b""
        room -= len(data)
        rows.append(_row(path, change.size, done, data, linked=room >= 0))
    own = [entry for entry in session.list_dir() if entry.is_file] if session is not None and box.here is None else []
    rows += [_row(entry.name, entry.size, done) for entry in own if entry.name not in shared]
    gone = [change for change in last if change.kind == "deleted"]
    rows += [FileRow(name=one_line(change.path, 300), size="", change="deleted by the last cell") for change in gone]
    return tuple(rows)


def _row(path: str, size: int | None, done: Mapping[str, str], data: bytes = b"", *, linked: bool = False) -> FileRow:
    name = display_name(path)
    kind = done.get(name, "")
    glimpse = _glimpse(path, data)
    whole = f"data:application/octet-stream;base64,{base64.b64encode(data).decode()}" if data and linked else ""
    return FileRow(
        name=one_line(name, 300),
        size="" if size is None else f"{size} byte{'' if size == 1 else 's'}",
        change=f"{kind} by the last cell" if kind else "",
        text=glimpse.text,
        picture=glimpse.picture,
        table=glimpse.table,
        link=whole,
    )


def _content(path: str, size: int, read: Read) -> bytes:
    """Return the content of a small file; empty for a large file, or one that no longer exists."""
    if not 0 < size <= _GLIMPSE_BYTES:
        return b""
    try:
        data = read(path)
    except SandboxError:
        return b""
    return data if len(data) <= _GLIMPSE_BYTES else b""


def _glimpse(path: str, data: bytes) -> _Glimpse:
    ending = path.rpartition(".")[2].lower()
    mime = _PICTURES.get(ending)
    if mime is not None and data:
        try:
            return _Glimpse(picture=f"data:{mime};base64,{check_image(mime, base64.b64encode(data).decode())}")
        except ContentRefused:
            return _Glimpse()
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return _Glimpse()
    shown = one_line(text.lstrip().partition("\n")[0][:1000], 1000)
    cut = f"{shown[:_GLIMPSE_CHARACTERS]}…" if len(shown) > _GLIMPSE_CHARACTERS else shown
    return _Glimpse(text=cut, table=_table(text, _TABLES[ending]) if ending in _TABLES else ())


def _table(text: str, separator: str) -> tuple[tuple[str, ...], ...]:
    """Return the first rows of a CSV or TSV text; none if it is not a table."""
    try:
        rows = list(islice(csv.reader(text.splitlines(), delimiter=separator), _TABLE_ROWS + 1))
    except csv.Error:
        return ()
    cut = [[one_line(value, _TABLE_CHARACTERS) for value in row[:_TABLE_COLUMNS]] for row in rows if row]
    return tuple(map(tuple, cut)) if len(cut) > 1 and len(cut[0]) > 1 else ()


def files_message(rows: Sequence[FileRow]) -> ShowOutput:
    """Return the rows as a table, in HTML and as text."""
    title = "files in the work folder"
    shown, more = rows[:MAX_ROWS], len(rows) - MAX_ROWS
    width = max((len(row.name) for row in shown), default=0)
    lines = [title]
    lines += [f"  {row.name:<{width}}  {', '.join(filter(None, (row.size, row.change, row.text)))}" for row in shown]
    body = "".join(
        f"<tr><th style='text-align:left'>{_name(row)}</th><td>{row.size}</td>"
        f"<td style='text-align:left'>{escape(row.change)}</td><td style='text-align:left'>{_cell(row)}</td></tr>"
        for row in shown
    )
    if more > 0:
        lines.append(f"  and {more} more")
        body += f"<tr><td colspan='4'>and {more} more</td></tr>"
    html = f"<table class='mathjax_ignore tex2jax_ignore'><caption>{title}</caption>{body}</table>"
    return ShowOutput({"text/html": defused(html), "text/plain": "\n".join(lines)})


def _name(row: FileRow) -> str:
    if not row.link:
        return escape(row.name)
    file = escape(row.name.rpartition("/")[2])
    return f"<a href='{row.link}' download='{file}' title='save this file'>{escape(row.name)}</a>"


def _cell(row: FileRow) -> str:
    if row.table:
        lines = ("".join(f"<td>{escape(value)}</td>" for value in line) for line in row.table)
        return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
    if row.picture:
        return f"<img src='{row.picture}' alt='{escape(row.name)}' style='max-height:80px'>"
    return f"<code>{escape(row.text)}</code>" if row.text else ""
