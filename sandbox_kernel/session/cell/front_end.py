"""What a front end asks of a cell beside its code, and what it gets: values of expressions, pages, a next cell.

Jupyter calls these ``user_expressions`` and ``payload``. The worker's answer is hostile: a value is cleaned like a
display, and text for another cell is accepted only if it grants nothing. Pure, but for the listener.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.model import Note, notes
from sandbox_kernel.receipt import INVISIBLE
from sandbox_kernel.session.cell.displays import LateListener

#: The most expressions of one cell, and the longest name and text of one.
MAX_EXPRESSIONS = 100
MAX_NAME, MAX_EXPRESSION = 200, 100_000
#: The most pages of one cell, and the longest text for another cell, in characters.
MAX_PAGES = 20
MAX_NEXT_INPUT = 1 << 20
_MAX_TRACEBACK = 50


@dataclass(frozen=True)
class NextInput:
    """Text for another cell of the notebook: the next one, or with ``replace`` the cell that ran."""

    text: str
    replace: bool


@dataclass(frozen=True)
class FrontEndReply:
    """What a cell gives its front end, cleaned. ``expressions`` is in Jupyter's form, by name.

    ``pages`` are MIME bundles for the pager. ``told`` are notes on what was changed or refused.
    """

    expressions: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    pages: tuple[Mapping[str, object], ...] = ()
    next_input: NextInput | None = None
    told: tuple[Note, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FrontEnd:
    """A front end that runs a cell."""

    #: Expressions by name; the session evaluates them after the cell, if it ended well.
    expressions: Mapping[str, str] = field(default_factory=dict)
    #: Called once, on the thread that runs the cell, when the cell has ended by itself.
    on_reply: Callable[[FrontEndReply], None]
    #: Gets the output of threads and tasks that comes after the end of the cell.
    late: LateListener | None = None

    def __post_init__(self) -> None:
        given = self.expressions
        usable = isinstance(given, Mapping) and len(given) <= MAX_EXPRESSIONS
        if not usable or not all(
            isinstance(name, str) and isinstance(text, str) and len(name) <= MAX_NAME and len(text) <= MAX_EXPRESSION
            for name, text in given.items()
        ):
            raise InvalidRequest(
                f"user_expressions takes at most {MAX_EXPRESSIONS} expressions by name, each a text of at most "
                f"{MAX_EXPRESSION} characters; got {self.expressions!r:.120}"
            )


def front_end_reply(asked: FrontEnd, said: Mapping[str, object]) -> FrontEndReply:
    """Clean the worker's answer to a front end; ``said`` may hold anything that JSON can."""
    from sandbox_kernel.untrusted.sanitize import sanitize_docstring  # the first cell that shows something pays for it

    values = said.get("expressions")
    values = values if isinstance(values, Mapping) else {}
    told: list[Note] = []
    next_input, pages = None, []
    payload = said.get("payload")
    for item in payload[: MAX_PAGES + 1] if isinstance(payload, list) else ():
        if not isinstance(item, Mapping):
            continue
        if item.get("source") == "page":
            pages.append(sanitize_docstring(item.get("data")).data)
        elif item.get("source") == "set_next_input":
            text = item.get("text")
            if isinstance(text, str) and may_be_written(text := text.replace("\r\n", "\n")):
                next_input = NextInput(text, item.get("replace") is True)
            else:
                told.append(notes.next_cell_refused())
    if next_input is not None:
        told.append(notes.next_cell_written(next_input.replace))
    return FrontEndReply(
        expressions={name: _value(values.get(name)) for name in asked.expressions},
        pages=tuple(pages),
        next_input=next_input,
        told=tuple(told),
    )


def unanswered(asked: Mapping[str, str]) -> FrontEndReply:
    """Return the reply for a cell that no Python session has run: each expression is an error that says so."""
    return FrontEndReply(expressions={name: _value(None) for name in asked})


def may_be_written(text: str) -> bool:
    """Whether a sandbox may put this text into a cell: visible, and without ``%sandbox`` lines, which grant access."""
    return (
        len(text) <= MAX_NEXT_INPUT
        and "%sandbox" not in text.casefold()
        and not INVISIBLE.search(text.replace("\n", "").replace("\t", ""))
    )


def _value(said: object) -> Mapping[str, object]:
    """Return one value in Jupyter's form: a bundle, or an error."""
    from sandbox_kernel.untrusted.sanitize import sanitize_bundle

    if isinstance(said, Mapping) and said.get("status") == "ok":
        clean = sanitize_bundle(said.get("data"), said.get("metadata"))
        return {"status": "ok", "data": clean.data, "metadata": clean.metadata}
    if not isinstance(said, Mapping):
        said = {"ename": "SandboxError", "evalue": "no Python session ran this cell; only they evaluate expressions"}
    lines = said.get("traceback")
    return {
        "status": "error",
        "ename": _text(said.get("ename"), 200),
        "evalue": _text(said.get("evalue"), 20_000),
        "traceback": [_text(line, 20_000) for line in lines[:_MAX_TRACEBACK]] if isinstance(lines, list) else [],
    }


def _text(text: object, limit: int) -> str:
    from sandbox_kernel.untrusted.sanitize import safe_text

    return safe_text(text, limit) if isinstance(text, str) else ""
