"""What line commands and preparing languages show: ``%sandbox changes``, ``files``, ``tree``, and a progress bar.

Names and contents are hostile: all text is escaped, a line is cut and has no control characters, and a picture has the
format of its suffix. A link to a file holds its bytes, for saving: no server serves the work folder.
"""

from __future__ import annotations

import base64
import contextlib
import shlex
import uuid
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange
from sandbox_kernel.notebook.render import ClearOutput, Door, Message, ShowOutput, one_line, tame
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.tree.node import Node
from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.media import check_image
from sandbox_kernel.untrusted.tex import defused
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.tree.paths import display_name

if TYPE_CHECKING:
    from sandbox_kernel.backends.wasm.prepare import PrepareProgress

#: The most changes that are shown in full, and characters of the diff.
MOST_SHOWN = 50
MOST_DIFF = 100_000
_PICTURE_BYTES = 512 << 10
_PICTURES = {"png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}
_COLOURS = {"+": "var(--jp-success-color1, #2e7d32)", "-": "var(--jp-error-color1, #c62828)"}
_WHAT_NEXT = "Write them to the folder with %sandbox apply [PATH…], drop them with %sandbox discard [PATH…]."

MAX_ROWS = 200
#: Largest file that is read for a preview, and for how many files.
_GLIMPSE_BYTES = 256 << 10
_GLIMPSES = 40
_GLIMPSE_CHARACTERS = 60
#: Most bytes that all links together add to a notebook.
_LINK_BYTES = 2 << 20
#: How much of a cell's first line, and how many names of changed variables, a line of the tree shows.
_CODE, _NAMES = 48, 6
_BLOCKS = 20


def text_message(text: str) -> tuple[Message, ...]:
    """Return a message of plain text, in which names and reasons may be the program's."""
    return (ShowOutput({"text/plain": tame(text)}),)


def _picture_url(path: str, data: bytes) -> str:
    """Return a picture as a ``data:`` address; empty for what is none, by its suffix or its content."""
    form = _PICTURES.get(path.rpartition(".")[2].lower())
    text = base64.b64encode(data).decode()
    if form is None or not data:
        return ""
    try:
        check_image(form, text)
    except ContentRefused:
        return ""
    return f"data:{form};base64,{text}"


# -- changes to the user's folder ------------------------------------------------------------------------------------


def show_changes(box: Sandbox, paths: Sequence[str]) -> tuple[Message, ...]:
    """Show the changes at these paths, text as a diff, pictures side by side; all without a path."""
    wanted = tuple(path.strip("/") for path in paths)
    changes = [
        change
        for change in box.diff()
        if not wanted or any(change.path == path or change.path.startswith(f"{path}/") for path in wanted)
    ]
    if not changes:
        return text_message(f"Nothing differs from {box.here}.")

    def size(change: FsChange) -> str:
        return f"  {_bytes(change.size)}" if change.kind != "deleted" and change.type == "file" else ""

    patch = tame(box.patch(paths or None)[:MOST_DIFF])
    summary = [f"{change.kind:<9} {one_line(change.path, 300)}{size(change)}" for change in changes[:MOST_SHOWN]]
    plain = "\n".join([f"{_count(changes)}:", *summary, "", patch, _WHAT_NEXT])
    pictures = lines = ""
    for change in changes[:MOST_SHOWN]:
        if any(urls := picture_urls(box, change)):
            shown = [f"<img alt='' style='max-width:45%;max-height:240px' src='{url}'>" if url else "" for url in urls]
            caption = escape(one_line(change.path, 300))
            pictures += f"<figure><figcaption>{caption}</figcaption>{' → '.join(shown)}</figure>"
    for line in patch.splitlines():
        colour = _COLOURS.get(line[:1]) if not line.startswith(("+++", "---")) else None
        lines += f"{escape(line)}\n" if colour is None else f"<span style='color:{colour}'>{escape(line)}\n</span>"
    page = (
        f"<div class='mathjax_ignore'><b>{_count(changes)}:</b>"
        f"<pre>{escape(chr(10).join(summary))}</pre>{pictures}"
        f"<details open><summary>diff</summary><pre>{lines}</pre></details><i>{escape(_WHAT_NEXT)}</i></div>"
    )
    return (ShowOutput({"text/html": defused(page), "text/plain": plain}),)


def apply_changes(box: Sandbox, paths: Sequence[str], shown: str | None = None) -> tuple[Message, ...]:
    """Write changes to the folder, of ``shown`` ones no others. A ``Conflict`` is the cell's error."""
    done = box.apply(paths or None, shown=shown)
    rest = box.diff()
    text = f"{_count(done)}, written to {box.here}." if done else "There is nothing to apply."
    if rest and not paths:
        named = " ".join(shlex.quote(one_line(change.path, 300)) for change in rest[:MOST_SHOWN])
        text += (
            "\nNot written, because tools on this machine may run or obey them unasked, or they may hold secrets. "
            f"To write them all the same: %sandbox apply {named}{' …' if len(rest) > MOST_SHOWN else ''}"
        )
        if why := box.why_left_out():
            text += f"\n{why}. To write them all: %sandbox apply ."
    return text_message(text)


def discard_changes(box: Sandbox, paths: Sequence[str]) -> tuple[Message, ...]:
    """Drop changes; cells see the folder's own files again."""
    done = box.discard(paths or None)
    return text_message(f"{_count(done)}, dropped." if done else "There is nothing to drop.")


def picture_urls(box: Sandbox, change: FsChange) -> tuple[str, str]:
    """Return a picture before and after a change as ``data:`` addresses; empty where there is none to show."""
    before = after = b""
    if box.here is None or change.path.rpartition(".")[2].lower() not in _PICTURES:
        return "", ""
    if change.kind in ("modified", "deleted") and not is_hidden(change.path):
        real = Path(box.here, change.path)
        if real.is_file() and not real.is_symlink() and real.stat().st_size <= _PICTURE_BYTES:
            before = real.read_bytes()
    if change.kind != "deleted":
        after = _content(box, change.path, change.size, _PICTURE_BYTES)
    return _picture_url(change.path, before), _picture_url(change.path, after)


def _count(changes: Sequence[FsChange]) -> str:
    return f"{len(changes)} change{'' if len(changes) == 1 else 's'}"


def _bytes(size: int | None) -> str:
    return "" if size is None else f"{size} byte{'' if size == 1 else 's'}"


# -- files of the work folder ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class FileRow:
    """One file. ``picture`` is a ``data:`` URL of a checked picture, ``link`` a ``data:`` URL for saving the file."""

    name: str
    size: str
    change: str = ""
    text: str = ""
    picture: str = ""
    link: str = ""


def list_files(box: Sandbox, session: Session | None, last: Sequence[FsChange]) -> tuple[FileRow, ...]:
    """List the shared files, then those that only the session has because they are too large to share."""
    done = {change.path: change.kind for change in last}
    shared = {change.path: change for change in box.diff() if change.type == "file" and change.kind != "deleted"}
    rows, room = [], _LINK_BYTES
    for number, (path, change) in enumerate(sorted(shared.items())):
        data = _content(box, path, change.size, _GLIMPSE_BYTES) if number < _GLIMPSES else b""
        room -= len(data)
        rows.append(_row(path, change.size, done, data, linked=room >= 0))
    own = [entry for entry in session.list_dir() if entry.is_file] if session is not None and box.here is None else []
    rows += [_row(entry.name, entry.size, done) for entry in own if entry.name not in shared]
    gone = [change for change in last if change.kind == "deleted"]
    rows += [FileRow(name=one_line(change.path, 300), size="", change="deleted by the last cell") for change in gone]
    return tuple(rows)


def _content(box: Sandbox, path: str, size: int | None, most: int) -> bytes:
    """Return the content of a small file; empty for a large file, or one that no longer exists."""
    if not 0 < (size or 0) <= most:
        return b""
    try:
        data = box.read_file(path)
    except SandboxError:
        return b""
    return data if len(data) <= most else b""


def _row(path: str, size: int | None, done: Mapping[str, str], data: bytes = b"", *, linked: bool = False) -> FileRow:
    name = display_name(path)
    kind, picture, text = done.get(name, ""), _picture_url(path, data), ""
    if not picture:
        with contextlib.suppress(UnicodeDecodeError):
            text = data.decode()
    first = one_line(text.lstrip().partition("\n")[0][:1000], 1000)
    return FileRow(
        name=one_line(name, 300),
        size=_bytes(size),
        change=f"{kind} by the last cell" if kind else "",
        text=f"{first[:_GLIMPSE_CHARACTERS]}…" if len(first) > _GLIMPSE_CHARACTERS else first,
        picture=picture,
        link=f"data:application/octet-stream;base64,{base64.b64encode(data).decode()}" if data and linked else "",
    )


def files_message(rows: Sequence[FileRow]) -> ShowOutput:
    """Return the rows as a table, in HTML and as text."""
    title = "files in the work folder"
    shown, more = rows[:MAX_ROWS], len(rows) - MAX_ROWS
    width = max((len(row.name) for row in shown), default=0)
    lines = [title]
    lines += [f"  {row.name:<{width}}  {', '.join(filter(None, (row.size, row.change, row.text)))}" for row in shown]
    body, left = "", "style='text-align:left'"
    for row in shown:
        name = escape(row.name)
        preview = f"<code>{escape(row.text)}</code>" if row.text else ""
        if row.picture:
            preview = f"<img src='{row.picture}' alt='{name}' style='max-height:80px'>"
        if row.link:
            file = escape(row.name.rpartition("/")[2])
            name = f"<a href='{row.link}' download='{file}' title='save this file'>{name}</a>"
        body += f"<tr><th {left}>{name}</th><td>{row.size}</td><td {left}>{escape(row.change)}</td>"
        body += f"<td {left}>{preview}</td></tr>"
    if more > 0:
        lines.append(f"  and {more} more")
        body += f"<tr><td colspan='4'>and {more} more</td></tr>"
    page = f"<table class='mathjax_ignore tex2jax_ignore'><caption>{title}</caption>{body}</table>"
    return ShowOutput({"text/html": defused(page), "text/plain": "\n".join(lines)})


# -- states of a session ---------------------------------------------------------------------------------------------


def tree(session: Session) -> tuple[Message, ...]:
    """``%sandbox tree``."""
    nodes = session.history()
    held = [node for node in nodes if node.alive]
    memory = sum(node.memory_bytes or 0 for node in held) / MIB
    summary = f"{len(held)} of {len(nodes)} states are held, with {memory:.0f} MB of their own"
    return _preformatted([*tree_lines(nodes), summary])


def diff(session: Session, states: Sequence[Node | str]) -> tuple[Message, ...]:
    """``%sandbox diff [A] [B]``: alone, what the cell of the present state changed."""
    if states:
        return _preformatted(str(session.diff(*states)).splitlines())
    present = next(node for node in session.history() if node.present)
    return _preformatted(str(session.diff(present.id if present.parent is None else present.parent)).splitlines())


def tree_lines(nodes: Sequence[Node]) -> list[str]:
    """Return one line for each node: ``●`` is the present state, ``○`` one that is held, ``·`` would run again."""
    by_id = {node.id: node for node in nodes}
    children: dict[int | None, list[Node]] = {}
    for node in nodes:
        children.setdefault(node.parent, []).append(node)
    at = next((node.id for node in nodes if node.present), None)
    present: set[int] = set()
    while at is not None and at in by_id:
        present.add(at)
        at = by_id[at].parent
    found: list[str] = []
    # A stack of lines to draw: a node with what stands before it, and what stands before the nodes after it.
    pending = [(node, "", "") for node in reversed(children.get(None, []))]
    while pending:
        node, first, rest = pending.pop()
        found.append(f"{first}{'●' if node.present else '○' if node.alive else '·'} {_line_of(node)}")
        below = sorted(children.get(node.id, []), key=lambda child: (child.id in present, child.id))
        if below:
            pending.append((below[-1], rest, rest))
            pending += [(child, f"{rest}├─", f"{rest}│ ") for child in reversed(below[:-1])]
    return found


def _line_of(node: Node) -> str:
    """Return one node as a line: its name and cell, and what that added (+), changed (~) and removed (-)."""
    words = [repr(node.name)] if node.name else []
    if node.parent is None and not node.code:
        words.append("the beginning")
    else:
        first = next((line.strip() for line in node.code.splitlines() if line.strip()), "")
        words.append(f"[{node.number}] {first[: _CODE - 1] + '…' if len(first) > _CODE else first}")
    changes = node.changed
    by_sign = (("+", changes.added), ("~", changes.changed), ("-", changes.removed))
    if signs := [f"{sign}{name}" for sign, names in by_sign for name in names]:
        more = f" and {len(signs) - _NAMES} more" if len(signs) > _NAMES else ""
        words.append(" ".join(signs[:_NAMES]) + more)
    if changes.files:
        words.append(f"{len(changes.files)} file{'' if len(changes.files) == 1 else 's'}")
    return "  ".join(words)


def _preformatted(lines: Sequence[str]) -> tuple[Message, ...]:
    text = tame("\n".join(lines)[:MOST_DIFF])
    return (ShowOutput({"text/html": f"<pre class='mathjax_ignore'>{escape(text)}</pre>", "text/plain": text}),)


# -- preparation of a language ---------------------------------------------------------------------------------------


class PreparationBar:
    """A progress bar below a cell, while its language is prepared for the first time. On the cell's loop.

    Only a page shows it. It goes again, with all output of the cell if it is ``alone`` there, else into an empty
    display.
    """

    def __init__(self, page: Door, *, alone: bool) -> None:
        self._page = page
        self._alone = alone
        self._id = ""

    def update(self, progress: PrepareProgress) -> None:
        """Draw the bar, or remove it at a fraction of 1."""
        if progress.fraction >= 1:
            self.close()
        elif self._id or self._page.watched():
            update = bool(self._id)
            self._id = self._id or uuid.uuid4().hex
            fraction = max(0.0, progress.fraction)
            words = f"making {progress.language} ready, once: {progress.text}"
            full = round(fraction * _BLOCKS)
            data = {
                "text/plain": f"{words} [{'#' * full}{'.' * (_BLOCKS - full)}] {fraction:.0%}",
                "text/html": f"<div><progress max='1' value='{fraction:.3f}'></progress> {escape(words)}</div>",
            }
            self._page.message(ShowOutput(data, display_id=self._id, update=update))

    def close(self) -> None:
        """Remove the bar, if there is one; may be called twice."""
        if self._id:
            nothing = ShowOutput({"text/plain": ""}, display_id=self._id, update=True)
            self._page.message(ClearOutput(wait=False) if self._alone else nothing)
            self._id = ""
