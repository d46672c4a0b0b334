"""What a front end asks of a cell beside its code, and what it gets: values of expressions, pages, a next cell.

Jupyter calls these ``user_expressions`` and ``payload``. The worker's answer is hostile: a value is cleaned like a
display, and text for another cell is accepted only if it grants nothing. Pure, but for the listener.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Annotated

import msgspec

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.model import Note, notes
from sandbox_kernel.receipt import INVISIBLE
from sandbox_kernel.session.cell.displays import HostWork, LateListener
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.util.wire import check_each, check_or

#: The most expressions of one cell, and the longest name and text of one.
MAX_EXPRESSIONS = 100
MAX_NAME, MAX_EXPRESSION = 200, 100_000
#: The most pages of one cell, and the longest text for another cell, in characters.
MAX_PAGES = 20
MAX_NEXT_INPUT = 1 << 20
_MAX_TRACEBACK = 50
_TOO_MUCH = "the host has worked long enough on what this cell sends; ask for fewer or smaller values"
_UNANSWERED = "no Python session ran this cell; only they evaluate expressions"


class Page(msgspec.Struct, tag_field="source", tag="page"):
    """A payload that shows text in the pager, of a worker or of a wrapped kernel."""

    data: object = None
    start: Annotated[int, msgspec.Meta(ge=0)] = 0


class _NextInput(msgspec.Struct, tag_field="source", tag="set_next_input"):
    text: object = None
    replace: object = False


#: One payload. A union also refuses one without a source.
Payload = Page | _NextInput


class _Value(msgspec.Struct):
    """The value of an expression, or with another status than ``ok`` its error."""

    status: str = ""
    data: object = None
    metadata: object = None
    ename: str = ""
    evalue: str = ""
    traceback: list[str] = []


@dataclass(frozen=True)
class NextInput:
    """Text for another cell of the notebook: the next one, or with ``replace`` the cell that ran."""

    text: str
    replace: bool


@dataclass(frozen=True)
class FrontEndReply:
    """What a cell gives its front end, cleaned: ``expressions`` in Jupyter's form, ``pages`` as bundles, ``notes``."""

    expressions: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    pages: tuple[Mapping[str, object], ...] = ()
    next_input: NextInput | None = None
    notes: tuple[Note, ...] = ()


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


def front_end_reply(asked: FrontEnd, said: Mapping[str, object], work: HostWork) -> FrontEndReply:
    """Clean the worker's answer to a front end, which is ``work`` for the cell; ``said`` may hold anything of JSON."""
    from sandbox_kernel.untrusted.sanitize import sanitize_docstring  # the first cell that shows something pays for it

    payload: list[object] = check_or(said.get("payload"), [])
    values: dict[str, object] = check_or(said.get("expressions"), {})
    told: list[Note] = []
    next_input, pages = None, []
    for item in check_each(payload[: MAX_PAGES + 1], Payload):
        if isinstance(item, Page):
            pages.append(sanitize_docstring(item.data).data)
        elif isinstance(item.text, str) and may_be_written(text := item.text.replace("\r\n", "\n")):
            next_input = NextInput(text, item.replace is True)
        else:
            told.append(notes.next_cell_refused())
    if next_input is not None:
        told.append(notes.next_cell_written(next_input.replace))
    return FrontEndReply(
        expressions={name: _value(values.get(name), work) for name in asked.expressions},
        pages=tuple(pages),
        next_input=next_input,
        notes=tuple(told),
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


def _value(said: object, work: HostWork | None = None) -> Mapping[str, object]:
    from sandbox_kernel.untrusted.sanitize import safe_text, sanitize_bundle

    why = _UNANSWERED if said is None else "the session answered in another form"
    given = check_or(said, _Value(ename="SandboxError", evalue=why))
    if given.status == "ok" and work is not None and work.is_used_up:
        given = _Value(ename="SandboxError", evalue=_TOO_MUCH)
    if given.status == "ok":
        clean = sanitize_bundle(given.data, given.metadata)
        return {"status": "ok", "data": clean.data, "metadata": clean.metadata}
    return {
        "status": "error",
        "ename": safe_text(given.ename, 200),
        "evalue": safe_text(given.evalue, 20_000),
        "traceback": [safe_text(line, 20_000) for line in given.traceback[:_MAX_TRACEBACK]],
    }
