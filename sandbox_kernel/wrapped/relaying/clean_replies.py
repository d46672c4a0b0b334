"""Cleans the replies of a wrapped kernel (its messages on shell, control and stdin) before a front end gets them.

A reply can do more than inform: a completion writes into a cell, a payload opens a pager or a new cell, a help link is
clicked, an exporter is imported by the server. Each kind of reply is written anew from declared fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec

from sandbox_kernel.notebook.render import PROMPT_MARK, name_of_program, told_apart
from sandbox_kernel.receipt import unmarked
from sandbox_kernel.session.code_answers import suggestions
from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.json_value import check_json
from sandbox_kernel.untrusted.sanitize import safe_text, sanitize_bundle, sanitize_docstring
from sandbox_kernel.wrapped.relaying.clean_outputs import Count, MalformedMessage, Table, declared, error, line

_MAX_PROMPT, _MAX_BANNER, _MAX_LINKS, _MAX_PAYLOADS, _MAX_EXPRESSIONS = 1000, 20_000, 20, 20, 100
#: Names of exporters and lexers without a dot: the server imports what a dotted name says.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_+#-]{1,60}\Z")
_LANGUAGE_FIELDS = {
    "name": re.compile(r"[^\x00-\x1f<>&\"]{1,60}\Z"),
    "version": re.compile(r"[A-Za-z0-9_+#.-]{1,60}\Z"),
    "mimetype": re.compile(r"[A-Za-z0-9.+-]{1,60}/[A-Za-z0-9.+-]{1,60}\Z"),
    "file_extension": re.compile(r"\.[A-Za-z0-9_+-]{1,20}\Z"),
    "pygments_lexer": _PLAIN_NAME,
    "nbconvert_exporter": _PLAIN_NAME,
}
#: Optional parts of the protocol that work through the relay. A debugger's answers hold displays, so it is left out.
_FEATURES = frozenset(("kernel subshells",))
_T = TypeVar("_T")
_NO_DEBUGGER = {"success": False, "message": "the debugger of a kernel in a sandbox is not available"}


class CompletionRequest(NamedTuple):
    """What a front end asked to complete: the code and the place of the cursor."""

    code: str
    position: int


class _Page(msgspec.Struct):
    """A payload that shows text in the pager; others write cells or open files."""

    source: Literal["page"]
    data: object = None
    start: Annotated[int, msgspec.Meta(ge=0)] = 0


class _Execute(msgspec.Struct):
    payload: list[object] | None = None
    user_expressions: dict[str, Table] | None = None
    execution_count: Count | None = None


class _Complete(msgspec.Struct):
    matches: list[object] = []
    cursor_start: int = -1
    cursor_end: int = -1
    metadata: Table | None = None


class _Typed(msgspec.Struct):
    text: str
    type: str = ""
    signature: str = ""


class _IsComplete(msgspec.Struct):
    status: Literal["complete", "incomplete", "invalid", "unknown"]
    indent: Annotated[str, msgspec.Meta(pattern=r"^[ \t]{0,200}\Z")] = ""


class _Link(msgspec.Struct):
    url: Annotated[str, msgspec.Meta(pattern=r"^https?://[!-~]{1,500}\Z")]
    text: str = ""


class _Info(msgspec.Struct):
    protocol_version: Annotated[str, msgspec.Meta(pattern=r"^5\.\d{1,2}(\.\d{1,2})?\Z")]
    language_info: Table
    implementation: str = ""
    implementation_version: str = ""
    banner: str = ""
    help_links: list[object] | None = None
    supported_features: list[object] | None = None


def clean_reply(kind: str, content: Table, asked: CompletionRequest | None) -> Table:
    """Return the content of a reply for the front end. Raises ``MalformedMessage``.

    Args:
        kind: the type of the message.
        content: its content.
        asked: for a completion, the request that it answers; None when it is not known.

    """
    cleaner = _CLEANERS.get(kind)
    if cleaner is None:
        raise MalformedMessage
    if content.get("status") == "error" and kind not in ("input_request", "debug_reply"):
        return {"status": "error", **error(content), **_count(declared(content, _Execute))}
    if content.get("status") in ("aborted", "abort") and kind == "execute_reply":
        return {"status": "aborted", **_count(declared(content, _Execute))}
    return _complete(content, asked) if kind == "complete_reply" else cleaner(content)


def _count(given: _Execute) -> Table:
    return {} if given.execution_count is None else {"execution_count": given.execution_count}


def _execute(content: Table) -> Table:
    given = declared(content, _Execute)
    pages = _valid((given.payload or [])[:_MAX_PAYLOADS], _Page)
    expressions = list((given.user_expressions or {}).items())[:_MAX_EXPRESSIONS]
    return {
        "status": "ok",
        **_count(given),
        "payload": [
            {"source": "page", "data": dict(sanitize_docstring(page.data).data), "start": page.start} for page in pages
        ],
        "user_expressions": {line(name): _expression(value) for name, value in expressions},
    }


def _valid(values: list[object], kind: type[_T]) -> list[_T]:
    """Return the values that have the declared form."""
    found = []
    for value in values:
        try:
            found.append(declared(value, kind))
        except MalformedMessage:
            continue
    return found


def _expression(value: Table) -> Table:
    if value.get("status") == "error":
        return {"status": "error", **error(value)}
    clean = sanitize_bundle(value.get("data"), value.get("metadata"))
    return {"status": "ok", "data": told_apart(clean.data), "metadata": dict(clean.metadata)}


def _complete(content: Table, asked: CompletionRequest | None) -> Table:
    given, place = declared(content, _Complete), asked.position if asked is not None else 0
    none: Table = {"status": "ok", "matches": [], "cursor_start": place, "cursor_end": place, "metadata": {}}
    if asked is None or given.cursor_end != place:
        return none
    allowed = suggestions(given.matches, asked.code, given.cursor_start, place)[0]
    if not allowed:
        return none
    where = {"cursor_start": given.cursor_start, "cursor_end": place}
    entries = (given.metadata or {}).get("_jupyter_types_experimental")
    typed = _valid(entries[:10_000], _Typed) if isinstance(entries, list) else []
    types = [
        {"start": given.cursor_start, "end": place, "text": each.text, "type": line(each.type),
         "signature": line(each.signature)}
        for each in typed if each.text in allowed
    ]  # fmt: skip
    metadata = {"_jupyter_types_experimental": types} if types else {}
    return {"status": "ok", "matches": allowed, **where, "metadata": metadata}


def _inspect(content: Table) -> Table:
    found = content.get("found") is True
    data = dict(sanitize_docstring(content.get("data")).data) if found else {}
    return {"status": "ok", "found": found, "data": data, "metadata": {}}


def _is_complete(content: Table) -> Table:
    given = declared(content, _IsComplete)
    return {"status": given.status} | ({"indent": given.indent} if given.status == "incomplete" else {})


def _history(content: Table) -> Table:
    try:
        return {"status": "ok", "history": check_json(content.get("history") or [])}
    except ContentRefused:
        return {"status": "ok", "history": []}


def _kernel_info(content: Table) -> Table:
    given = declared(content, _Info)
    links = _valid((given.help_links or [])[:_MAX_LINKS], _Link)
    return {
        "status": "ok",
        "protocol_version": given.protocol_version,
        # By its name the extension knows our own kernel.
        "implementation": name_of_program(line(given.implementation)),
        "implementation_version": line(given.implementation_version),
        "banner": safe_text(given.banner, _MAX_BANNER),
        "language_info": _language(given.language_info),
        "help_links": [{"text": line(link.text, 80), "url": link.url} for link in links],
        "debugger": False,
        "supported_features": sorted(_FEATURES.intersection(map(str, given.supported_features or []))),
    }


def _language(given: Table) -> Table:
    found: Table = {}
    for name, form in _LANGUAGE_FIELDS.items():
        field = given.get(name)
        if isinstance(field, str) and form.match(field):
            found[name] = unmarked(field)
    mode = given.get("codemirror_mode")
    if isinstance(mode, str):
        found["codemirror_mode"] = line(mode)
    elif isinstance(mode, dict):
        pairs = list(mode.items())[:10]
        plain = {str(key)[:60]: field for key, field in pairs if isinstance(field, str | int) and len(str(field)) <= 60}
        found["codemirror_mode"] = plain
    return found


def _prompt(content: Table) -> Table:
    prompt = PROMPT_MARK + line(content.get("prompt"), _MAX_PROMPT)
    return {"prompt": prompt, "password": content.get("password") is True}


def _plain(*names: str) -> Callable[[Table], Table]:
    """Return a cleaner that keeps these fields if they are plain JSON."""

    def clean(content: Table) -> Table:
        try:
            return {"status": "ok", **{name: check_json(content[name]) for name in names if name in content}}
        except ContentRefused:
            raise MalformedMessage from None

    return clean


_CLEANERS: Mapping[str, Callable[[Table], Table]] = {
    "execute_reply": _execute,
    "complete_reply": lambda content: _complete(content, None),
    "inspect_reply": _inspect,
    "is_complete_reply": _is_complete,
    "history_reply": _history,
    "kernel_info_reply": _kernel_info,
    "shutdown_reply": lambda content: {"status": "ok", "restart": content.get("restart") is True},
    "interrupt_reply": _plain(),
    "debug_reply": lambda content: dict(_NO_DEBUGGER),
    "create_subshell_reply": _plain("subshell_id"),
    "delete_subshell_reply": _plain(),
    "list_subshell_reply": _plain("subshell_id"),
    "usage_reply": _plain(),
    "input_request": _prompt,
}
