"""The outputs of a cell as text that can be compared between ipykernel and the Sandbox kernel. Pure.

What differs on purpose is taken away: receipts, the grey line beside HTML, what the cleaner removes from markup, and
the paths of the work folder, which is ``/box`` inside, and of the user's home. Lines of ``!command`` end with two
characters in ipykernel. The process in the names of cells is another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from sandbox_kernel.notebook.render import told_apart
from sandbox_kernel.receipt import MARK, MIME
from sandbox_kernel.untrusted.ansi import plain
from sandbox_kernel.untrusted.sanitize import sanitize_bundle

_BEGIN, _, _END = told_apart({"text/html": "\0"})["text/html"].partition("\0")  # type: ignore[attr-defined]
_NUMBERS = (
    (re.compile(r"/tmp/ipykernel_\d+/"), "/tmp/ipykernel_N/"),
    (re.compile(r"\r+\n"), "\n"),
    (re.compile(r"0x[0-9a-f]{6,}"), "0xN"),
)


def comparable(outputs: Iterable[Mapping[str, Any]], folder: str) -> str:
    """Return what a cell showed, as text.

    Args:
        outputs: Outputs of a notebook's cell, as nbformat has them.
        folder: The folder that the notebook worked in.

    """
    parts: list[tuple[str, str]] = []
    for output in outputs:
        kind = output["output_type"]
        if kind == "stream":
            name = f"stream {output['name']}"
            if parts and parts[-1][0] == name:
                parts[-1] = (name, parts[-1][1] + output["text"])
            else:
                parts.append((name, output["text"]))
        elif kind == "error":
            parts.append((f"error {output['ename']}", f"{output['evalue']}\n{_traceback(output['traceback'])}"))
        elif MIME not in output["data"]:
            parts.append((kind, _bundle(output)))
    text = "\n".join(f"[{name}]\n{shown}" for name, shown in parts)
    for pattern, instead in _NUMBERS:
        text = pattern.sub(instead, text)
    return text.replace(folder, "FOLDER").replace("/box", "FOLDER").replace(f"{Path.home()}/", "~/")


def _traceback(lines: Iterable[str]) -> str:
    return plain("\n".join(line for line in lines if MARK not in line))


def _bundle(output: Mapping[str, Any]) -> str:
    """Return the clean forms of a display; pictures as a digest."""
    data = dict(output["data"])
    html = data.get("text/html")
    if isinstance(html, str) and html.startswith(_BEGIN):
        data["text/html"] = html.removeprefix(_BEGIN).removesuffix(_END)
    clean = sanitize_bundle(data, output.get("metadata", {})).data
    shown = []
    for mime, value in sorted(clean.items()):
        text = str(value)
        shown.append(f"({mime})\n{sha256(text.encode()).hexdigest()[:16] if mime.startswith('image/') else text}")
    return "\n".join(shown)
