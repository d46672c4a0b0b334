"""Cleans the replies of a wrapped kernel (its messages on shell, control and stdin) before a front end gets them.

A reply can do more than inform: a completion writes into a cell, a payload opens a pager or a new cell, a help link is
clicked, an exporter is imported by the server. Each kind of reply is written anew from checked fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sandbox_kernel.notebook.render import PROMPT_MARK, name_of_program
from sandbox_kernel.receipt import unmarked
from sandbox_kernel.session.suggestions import suggestions
from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.json_value import check_json
from sandbox_kernel.untrusted.sanitize import sanitize_docstring
from sandbox_kernel.wrapped.cleaning import clean_parts
from sandbox_kernel.wrapped.cleaning.clean_parts import MalformedMessage, Table

_MAX_PROMPT, _MAX_LINKS, _MAX_PAYLOADS, _MAX_EXPRESSIONS = 1000, 20, 20, 100
_LINK = re.compile(r"https?://[!-~]{1,500}\Z")
_NAME = re.compile(r"[A-Za-z0-9_+#.-]{1,60}\Z")
#: Names of exporters and lexers without a dot: the server imports what a dotted name says.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_+#-]{1,60}\Z")
_INDENT = re.compile(r"[ \t]{0,200}\Z")
_SUFFIX = re.compile(r"\.[A-Za-z0-9_+-]{1,20}\Z")
_MIME = re.compile(r"[A-Za-z0-9.+-]{1,60}/[A-Za-z0-9.+-]{1,60}\Z")
_LANGUAGE_FIELDS = {
    "name": re.compile(r"[^\x00-\x1f<>&\"]{1,60}\Z"),
    "version": _NAME,
    "mimetype": _MIME,
    "file_extension": _SUFFIX,
    "pygments_lexer": _PLAIN_NAME,
    "nbconvert_exporter": _PLAIN_NAME,
}
#: Optional parts of the protocol that work through the relay. A debugger's answers hold displays, so it is left out.
_FEATURES = frozenset(("kernel subshells",))


@dataclass(frozen=True)
class CompletionRequest:
    """What a front end asked to complete: the code and the place of the cursor."""

    code: str
    position: int


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
        return {"status": "error", **clean_parts.error(content), **_count(content)}
    if content.get("status") in ("aborted", "abort") and kind == "execute_reply":
        return {"status": "aborted", **_count(content)}
    if kind == "complete_reply":
        return _complete(content, asked)
    return cleaner(content)


def _count(content: Table) -> Table:
    value = content.get("execution_count")
    return {} if value is None else {"execution_count": clean_parts.count(value)}


def _execute(content: Table) -> Table:
    payloads = content.get("payload")
    pages = [_page(each) for each in payloads[:_MAX_PAYLOADS]] if isinstance(payloads, list) else []
    expressions = content.get("user_expressions")
    found = list(expressions.items())[:_MAX_EXPRESSIONS] if isinstance(expressions, dict) else []
    return {
        "status": "ok",
        **_count(content),
        "payload": [page for page in pages if page is not None],
        "user_expressions": {clean_parts.line(name): _expression(value) for name, value in found},
    }


def _page(payload: object) -> Table | None:
    """Return a payload that shows text in the pager; None for others, which write cells or open files."""
    if not isinstance(payload, dict) or payload.get("source") != "page":
        return None
    start = payload.get("start")
    clean = sanitize_docstring(payload.get("data"))
    return {"source": "page", "data": dict(clean.data), "start": start if type(start) is int and start >= 0 else 0}


def _expression(value: object) -> Table:
    found = clean_parts.table(value)
    if found.get("status") == "error":
        return {"status": "error", **clean_parts.error(found)}
    return {"status": "ok", **clean_parts.bundle(found)}


def _complete(content: Table, asked: CompletionRequest | None) -> Table:
    start, end = content.get("cursor_start"), content.get("cursor_end")
    none: Table = {"status": "ok", "matches": [], "cursor_start": 0, "cursor_end": 0, "metadata": {}}
    if asked is None:
        return none
    none |= {"cursor_start": asked.position, "cursor_end": asked.position}
    if type(start) is not int or type(end) is not int or end != asked.position:
        return none
    allowed = suggestions(content.get("matches"), asked.code, start, asked.position)
    if not allowed.matches:
        return none
    extra = content.get("metadata")
    entries = extra.get("_jupyter_types_experimental") if isinstance(extra, dict) else None
    types = _types(entries, allowed.matches, start, end)
    return {
        "status": "ok",
        "matches": list(allowed.matches),
        "cursor_start": start,
        "cursor_end": end,
        "metadata": {"_jupyter_types_experimental": types} if types else {},
    }


def _types(entries: object, allowed: tuple[str, ...], start: int, end: int) -> list[Table]:
    """Return the types and signatures of the completions that are allowed."""
    found: list[Table] = []
    names = set(allowed)
    for entry in entries[:10_000] if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("text"), str) and entry["text"] in names:
            facts = {name: clean_parts.line(entry[name]) for name in ("type", "signature") if name in entry}
            found.append({"start": start, "end": end, "text": entry["text"], **facts})
    return found


def _inspect(content: Table) -> Table:
    found = content.get("found") is True
    data = dict(sanitize_docstring(content.get("data")).data) if found else {}
    return {"status": "ok", "found": found, "data": data, "metadata": {}}


def _is_complete(content: Table) -> Table:
    status, indent = content.get("status"), content.get("indent", "")
    if status not in ("complete", "incomplete", "invalid", "unknown"):
        raise MalformedMessage
    if status != "incomplete":
        return {"status": status}
    return {
        "status": status,
        "indent": indent if isinstance(indent, str) and _INDENT.match(indent) else "",
    }


def _history(content: Table) -> Table:
    try:
        return {"status": "ok", "history": check_json(content.get("history") or [])}
    except ContentRefused:
        return {"status": "ok", "history": []}


def _kernel_info(content: Table) -> Table:
    links = content.get("help_links")
    features = content.get("supported_features")
    protocol = content.get("protocol_version")
    if not isinstance(protocol, str) or not re.fullmatch(r"5\.\d{1,2}(\.\d{1,2})?", protocol):
        raise MalformedMessage
    return {
        "status": "ok",
        "protocol_version": protocol,
        # By its name the extension knows our own kernel.
        "implementation": name_of_program(clean_parts.line(content.get("implementation"))),
        "implementation_version": clean_parts.line(content.get("implementation_version")),
        "banner": clean_parts.text(content.get("banner", "")),
        "language_info": _language(content.get("language_info")),
        "help_links": [_link(each) for each in links[:_MAX_LINKS] if _link(each)] if isinstance(links, list) else [],
        "debugger": False,
        "supported_features": sorted(_FEATURES.intersection(map(str, features))) if isinstance(features, list) else [],
    }


def _language(value: object) -> Table:
    given = clean_parts.table(value)
    found: Table = {}
    for name, form in _LANGUAGE_FIELDS.items():
        field = given.get(name)
        if isinstance(field, str) and form.match(field):
            found[name] = unmarked(field)
    mode = given.get("codemirror_mode")
    if isinstance(mode, str):
        found["codemirror_mode"] = clean_parts.line(mode)
    elif isinstance(mode, dict):
        pairs = list(mode.items())[:10]
        plain = {str(key)[:60]: field for key, field in pairs if isinstance(field, str | int) and len(str(field)) <= 60}
        found["codemirror_mode"] = plain
    return found


def _link(value: object) -> Table:
    if not isinstance(value, dict) or not isinstance(value.get("url"), str) or not _LINK.match(value["url"]):
        return {}
    return {"text": clean_parts.line(value.get("text"), 80), "url": value["url"]}


def _prompt(content: Table) -> Table:
    return {
        "prompt": PROMPT_MARK + clean_parts.line(content.get("prompt"), _MAX_PROMPT),
        "password": content.get("password") is True,
    }


def _plain(*names: str) -> Callable[[Table], Table]:
    """Return a cleaner that keeps these fields if they are plain JSON."""

    def clean(content: Table) -> Table:
        try:
            return {"status": "ok", **{name: check_json(content[name]) for name in names if name in content}}
        except ContentRefused:
            raise MalformedMessage from None

    return clean


_NO_DEBUGGER = {"success": False, "message": "the debugger of a kernel in a sandbox is not available"}
_CLEANERS: Mapping[str, Callable[[Table], Table]] = {
    "execute_reply": _execute,
    "complete_reply": lambda content: _complete(content, None),
    "inspect_reply": _inspect,
    "is_complete_reply": _is_complete,
    "history_reply": _history,
    "kernel_info_reply": _kernel_info,
    "shutdown_reply": lambda content: {"status": "ok", "restart": content.get("restart") is True},
    "interrupt_reply": lambda content: {"status": "ok"},
    "debug_reply": lambda content: dict(_NO_DEBUGGER),
    "create_subshell_reply": _plain("subshell_id"),
    "delete_subshell_reply": _plain(),
    "list_subshell_reply": _plain("subshell_id"),
    "usage_reply": _plain(),
    "input_request": _prompt,
}
