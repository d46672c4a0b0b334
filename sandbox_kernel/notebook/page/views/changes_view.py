"""``%sandbox changes``, ``apply`` and ``discard``: what cells changed in the folder of ``--here``.

Text is shown as a diff, pictures side by side, the rest by size. Names and contents come from the sandbox: all text is
escaped, and a picture is shown only if it has the format of its suffix.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import FsChange
from sandbox_kernel.notebook.render import Message, ShowOutput, one_line
from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.media import check_image
from sandbox_kernel.untrusted.tex import defused
from sandbox_kernel.workspace.hidden import is_hidden

#: The most changes that are shown in full, and characters of the diff.
MOST_SHOWN = 50
MOST_DIFF = 100_000
_PICTURE_BYTES = 512 << 10
_PICTURES = {"png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}
_COLOURS = {"+": "var(--jp-success-color1, #2e7d32)", "-": "var(--jp-error-color1, #c62828)"}


def show_changes(box: Sandbox, paths: Sequence[str]) -> tuple[Message, ...]:
    """Show the changes at these paths; all without a path."""
    changes = _chosen(box, paths)
    if not changes:
        return _text(f"Nothing differs from {box.here}.")
    patch = box.patch(paths or None)[:MOST_DIFF]
    summary = [f"{change.kind:<9} {one_line(change.path, 300)}{_size(change)}" for change in changes]
    plain = "\n".join([_count(changes), *summary[:MOST_SHOWN], "", patch, _what_next()])
    pictures = "".join(_pictures(box, change) for change in changes[:MOST_SHOWN])
    lines = "".join(_line(line) for line in patch.splitlines())
    html = (
        f"<div class='mathjax_ignore'><b>{escape(_count(changes))}</b>"
        f"<pre>{escape(chr(10).join(summary[:MOST_SHOWN]))}</pre>{pictures}"
        f"<details open><summary>diff</summary><pre>{lines}</pre></details><i>{escape(_what_next())}</i></div>"
    )
    return (ShowOutput({"text/html": defused(html), "text/plain": plain}),)


def apply_changes(box: Sandbox, paths: Sequence[str], shown: str | None = None) -> tuple[Message, ...]:
    """Write changes to the folder, of ``shown`` ones no others. A ``Conflict`` is the cell's error."""
    done = box.apply(paths or None, shown=shown)
    rest = box.diff()
    text = f"{_count(done)[:-1]}, written to {box.here}." if done else "There is nothing to apply."
    if rest and not paths:
        named = " ".join(shlex.quote(one_line(change.path, 300)) for change in rest[:MOST_SHOWN])
        text += (
            "\nNot written, because tools on this machine may run or obey them unasked, or they may hold secrets. "
            f"To write them all the same: %sandbox apply {named}{' …' if len(rest) > MOST_SHOWN else ''}"
        )
    return _text(text)


def discard_changes(box: Sandbox, paths: Sequence[str]) -> tuple[Message, ...]:
    """Drop changes; cells see the folder's own files again."""
    done = box.discard(paths or None)
    return _text(f"{_count(done)[:-1]}, dropped." if done else "There is nothing to drop.")


def _chosen(box: Sandbox, paths: Sequence[str]) -> tuple[FsChange, ...]:
    wanted = tuple(path.strip("/") for path in paths)
    changes = box.diff()
    if not wanted:
        return changes
    return tuple(c for c in changes if any(c.path == path or c.path.startswith(f"{path}/") for path in wanted))


def _pictures(box: Sandbox, change: FsChange) -> str:
    """Return a changed picture beside the one before it; empty for anything else."""
    before, after = (_picture(url) for url in picture_urls(box, change))
    if not before and not after:
        return ""
    return f"<figure><figcaption>{escape(one_line(change.path, 300))}</figcaption>{before} → {after}</figure>"


def picture_urls(box: Sandbox, change: FsChange) -> tuple[str, str]:
    """Return a picture before and after a change as ``data:`` addresses; empty where there is none to show."""
    form = _PICTURES.get(change.path.rpartition(".")[2].lower())
    if form is None or box.here is None:
        return "", ""
    before = after = ""
    if change.kind in ("modified", "deleted") and not is_hidden(change.path):
        real = Path(box.here, change.path)
        if real.is_file() and not real.is_symlink() and real.stat().st_size <= _PICTURE_BYTES:
            before = _data_url(real.read_bytes(), form)
    if change.kind != "deleted" and (change.size or 0) <= _PICTURE_BYTES:
        try:
            after = _data_url(box.read_file(change.path), form)
        except SandboxError:
            after = ""
    return before, after


def _data_url(data: bytes, form: str) -> str:
    text = base64.b64encode(data).decode()
    try:
        check_image(form, text)
    except ContentRefused:
        return ""
    return f"data:{form};base64,{text}"


def _picture(url: str) -> str:
    return f"<img alt='' style='max-width:45%;max-height:240px' src='{url}'>" if url else ""


def _line(line: str) -> str:
    colour = _COLOURS.get(line[:1]) if not line.startswith(("+++", "---")) else None
    shown = escape(line) + "\n"
    return shown if colour is None else f"<span style='color:{colour}'>{shown}</span>"


def _count(changes: Sequence[FsChange]) -> str:
    return f"{len(changes)} change{'' if len(changes) == 1 else 's'}:"


def _size(change: FsChange) -> str:
    unit = "byte" if change.size == 1 else "bytes"
    return f"  {change.size} {unit}" if change.kind != "deleted" and change.type == "file" else ""


def _what_next() -> str:
    return "Write them to the folder with %sandbox apply [PATH…], drop them with %sandbox discard [PATH…]."


def _text(text: str) -> tuple[Message, ...]:
    return (ShowOutput({"text/plain": text}),)
