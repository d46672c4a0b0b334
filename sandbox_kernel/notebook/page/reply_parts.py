"""The parts of an ``execute_reply`` that come from the sandbox: values of ``user_expressions``, and the ``payload``.

``session/cell/front_end.py`` has cleaned them; here they get the form that pages expect, told apart from what is ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from sandbox_kernel.notebook.render import told_apart
from sandbox_kernel.receipt import unmarked
from sandbox_kernel.session.cell.front_end import FrontEndReply

_OWN_LINES = re.compile(r"(?:\ufeff?%{1,2}sandbox(?:\s[^\n]*)?\n)*")


def expressions(reply: FrontEndReply) -> dict[str, object]:
    """The values of ``user_expressions``, by name."""
    return {name: _apart(value) for name, value in reply.expressions.items()}


def payload(reply: FrontEndReply, cell: str) -> list[dict[str, object]]:
    """The pages for the pager and the text for another cell. What replaces ``cell`` keeps its ``%sandbox`` lines."""
    parts: list[dict[str, object]] = [{"source": "page", "start": 0, "data": told_apart(data)} for data in reply.pages]
    found = reply.next_input
    if found is not None:
        own = _OWN_LINES.match(cell.replace("\r\n", "\n"))
        text = f"{own[0] if own else ''}{found.text}" if found.replace else found.text
        parts.append({"source": "set_next_input", "text": text, "replace": found.replace})
    return parts


def _apart(value: Mapping[str, object]) -> dict[str, object]:
    data = value.get("data")
    if isinstance(data, Mapping):
        return {**value, "data": told_apart(data)}
    lines = value.get("traceback")
    shown = [unmarked(line) for line in lines] if isinstance(lines, list) else []
    return {**value, "evalue": unmarked(str(value.get("evalue"))), "traceback": shown}
