"""``%sandbox files``: what is in the work folder, how large, what the last cell did to it, and a glimpse of it.

Names and contents are a sandbox's own words: text is cut to one harmless line, and a picture is shown only when it is
the format that it claims to be.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import FsChange
from sandbox_kernel.notebook.render import Shown, one_line
from sandbox_kernel.notebook.untrusted import Refused
from sandbox_kernel.notebook.untrusted.images import check_image
from sandbox_kernel.notebook.untrusted.tex import defused
from sandbox_kernel.sandbox import Sandbox
from sandbox_kernel.session.session import Session
from sandbox_kernel.workspace.paths import display_name

MAX_ROWS = 200
#: What is read for a glimpse: of one file, and of how many.
_GLIMPSE_BYTES = 256 << 10
_GLIMPSES = 40
_GLIMPSE_CHARACTERS = 60
_PICTURES = {"png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}

Read = Callable[[str], bytes]


@dataclass(frozen=True, kw_only=True)
class FileRow:
    """One file. ``picture`` is a checked ``data:`` URL."""

    name: str
    size: str
    change: str = ""
    text: str = ""
    picture: str = ""


def list_files(box: Sandbox, session: Session | None, last: Sequence[FsChange]) -> tuple[FileRow, ...]:
    """The shared files, then those that the session keeps for itself because they are large."""
    done = {change.path: change.kind for change in last}
    shared = {change.path: change for change in box.diff() if change.type == "file" and change.kind != "deleted"}
    rows = [
        _row(path, change.size, done, box.read_file if number < _GLIMPSES else None)
        for number, (path, change) in enumerate(sorted(shared.items()))
    ]
    own = [entry for entry in session.list_dir() if entry.is_file] if session is not None else []
    rows += [_row(entry.name, entry.size, done, None) for entry in own if entry.name not in shared]
    gone = [change for change in last if change.kind == "deleted"]
    rows += [FileRow(name=one_line(change.path, 300), size="", change="deleted by the last cell") for change in gone]
    return tuple(rows)


def _row(path: str, size: int | None, done: Mapping[str, str], read: Read | None) -> FileRow:
    name = display_name(path)
    kind = done.get(name, "")
    text, picture = _glimpse(path, size or 0, read) if read is not None else ("", "")
    return FileRow(
        name=one_line(name, 300),
        size="" if size is None else f"{size} byte{'' if size == 1 else 's'}",
        change=f"{kind} by the last cell" if kind else "",
        text=text,
        picture=picture,
    )


def _glimpse(path: str, size: int, read: Read) -> tuple[str, str]:
    if not 0 < size <= _GLIMPSE_BYTES:
        return "", ""
    try:
        data = read(path)
    except SandboxError:
        return "", ""
    mime = _PICTURES.get(path.rpartition(".")[2].lower())
    if mime is not None:
        try:
            return "", f"data:{mime};base64,{check_image(mime, base64.b64encode(data).decode())}"
        except Refused:
            return "", ""
    try:
        line = data.decode().lstrip().partition("\n")[0]
    except UnicodeDecodeError:
        return "", ""
    shown = one_line(line[:1000], 1000)
    return (f"{shown[:_GLIMPSE_CHARACTERS]}…" if len(shown) > _GLIMPSE_CHARACTERS else shown), ""


def files_message(rows: Sequence[FileRow]) -> Shown:
    """The rows as a table, for pages and for terminals."""
    title = "files in the work folder"
    shown, more = rows[:MAX_ROWS], len(rows) - MAX_ROWS
    width = max((len(row.name) for row in shown), default=0)
    lines = [title]
    lines += [f"  {row.name:<{width}}  {', '.join(filter(None, (row.size, row.change, row.text)))}" for row in shown]
    body = "".join(
        f"<tr><th style='text-align:left'>{escape(row.name)}</th><td>{row.size}</td>"
        f"<td style='text-align:left'>{escape(row.change)}</td><td style='text-align:left'>{_cell(row)}</td></tr>"
        for row in shown
    )
    if more > 0:
        lines.append(f"  and {more} more")
        body += f"<tr><td colspan='4'>and {more} more</td></tr>"
    html = f"<table class='mathjax_ignore tex2jax_ignore'><caption>{title}</caption>{body}</table>"
    return Shown({"text/html": defused(html), "text/plain": "\n".join(lines)})


def _cell(row: FileRow) -> str:
    if row.picture:
        return f"<img src='{row.picture}' alt='{escape(row.name)}' style='max-height:80px'>"
    return f"<code>{escape(row.text)}</code>" if row.text else ""
