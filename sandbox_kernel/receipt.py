"""A result as a notebook shows it: one MIME bundle. nbval compares its *data*, where nothing measured may stand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox_kernel.model import ExecResult, Violation


#: Control and format characters (directions, joiners, tags), line separators, and letters that are invisible.
INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
_SPACES = re.compile(r"\s+")


def one_line(text: str, limit: int) -> str:
    """Return the text on one line of at most ``limit`` characters; invisible characters become U+FFFD."""
    # Cut first, so that the work below depends on the limit and not on the length of the text.
    cut = text[: 4 * limit]
    shown = INVISIBLE.sub("\ufffd", _SPACES.sub(" ", cut)).strip()
    return shown if len(shown) <= limit and len(cut) == len(text) else f"{shown[: limit - 1]}…"


MIME = "application/vnd.sandbox-kernel.run+json"

#: Our own lines of text begin with it; text of a sandbox has a bare square in its place.
MARK, _NO_MARK = "\u25a3", "\u25a1"
#: The mark, other squares with a square in them, and what draws a square around another sign.
_LIKE_MARK = re.compile("[\u20de\u22a1\u25a3\u29c8\U0001f532\U0001f533\U0001f794-\U0001f796]")

#: Notes and refusals quote the sandbox: each stays on one line, and none is longer.
_MAX_LINE = 1000

_GOOD, _BAD = "#2e7d32", "#c62828"


def facts(result: ExecResult, ending: str) -> dict[str, Any]:
    """What is the same at every run of the same program under the same limits."""
    stable = [note for note in result.notes if not note.kind.of_this_run]
    return {
        "status": str(result.status),
        "ending": ending,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "limit": None if result.limit is None else str(result.limit),
        "language": result.language,
        "backend": result.backend,
        "isolation": result.isolation,
        "timeout_s": result.timeout,
        "memory_limit_mb": result.memory_limit_mb,
        **({} if result.gpu_memory_limit_mb is None else {"gpu_memory_limit_mb": result.gpu_memory_limit_mb}),
        "stdout_truncated": result.stdout_truncated,
        "stderr_truncated": result.stderr_truncated,
        "rolled_back": result.rolled_back,
        "violations": [_refusal(violation) for violation in result.violations],
        "notes": [_line(note) for note in stable],
        # For the page, which never reads the sentences.
        **({"note_kinds": [str(note.kind) for note in stable]} if stable else {}),
    }


def unmarked(text: str) -> str:
    """Text of a sandbox without our mark, or what looks like it."""
    return text if text.isascii() else _LIKE_MARK.sub(_NO_MARK, text)


def _line(text: str) -> str:
    return unmarked(one_line(text, _MAX_LINE))


def _refusal(violation: Violation) -> dict[str, str]:
    """What was refused; the name of a host or a file is the program's own word."""
    told = (("rule", violation.rule), ("subject", violation.subject), ("reason", violation.reason))
    return {name: _line(text) for name, text in (*told, ("remedy", violation.remedy))}


#: What is measured of cells of sessions alone.
_OF_A_CELL = ("added_memory_bytes", "kept_memory_bytes")


def measurements(result: ExecResult) -> dict[str, object]:
    """What differs from run to run, or from machine to machine; belongs into output metadata, never into data."""
    chosen = {"chosen": result.chosen} if result.chosen else {}
    gpu = result.peak_gpu_memory_bytes
    return {
        "duration_s": result.duration,
        "compile_duration_s": result.compile_duration,
        "cpu_s": result.cpu_seconds,
        "peak_memory_bytes": result.peak_memory_bytes,
        **{name: value for name in _OF_A_CELL if (value := getattr(result, name)) is not None},
        **({} if gpu is None else {"peak_gpu_memory_bytes": gpu}),
        "stdout_bytes": result.stdout_bytes,
        "stderr_bytes": result.stderr_bytes,
        "fuel_used": result.fuel_used,
        "notes": [_line(note) for note in result.notes if note.kind.of_this_run],
        **({"changed_files": len(result.changes)} if result.changes else {}),
        **chosen,
    }


#: Words for kinds of isolation, as a user knows them. ``labextension/static/receipt.js`` has the same.
_ISOLATION = {"process+sandbox": "isolated process", "process": "process without walls", "wasm": "WebAssembly"}


def describe_isolation(isolation: str) -> str:
    """The kind of isolation in words for a user; a kind that is not known as it is."""
    return _ISOLATION.get(isolation, isolation)


def plain_text(result: ExecResult, ending: str) -> str:
    """The receipt for terminals: a line, then one for each thing to know. ``ending`` is empty if it was shown above."""
    return _text(facts(result, ending), result)


def _text(known: Mapping[str, Any], result: ExecResult) -> str:
    limits = f"limits {_limits(result)}" if _limits(result) else ""
    isolation = describe_isolation(result.isolation) or "unknown isolation"
    parts = (result.language or "run", known["ending"], limits, isolation)
    lines = [f"{MARK} [{' · '.join(filter(None, parts))}]"]
    for told in known["violations"]:
        remedy = f" → {told['remedy']}" if told["remedy"] else ""
        lines.append(f"  refused: {told['rule']} {told['subject']}: {told['reason']}{remedy}")
    lines += [f"  note: {note}" for note in (*known["notes"], *_unusual(result))]
    return "\n".join(lines)


def _html(known: Mapping[str, Any], result: ExecResult) -> str:
    """The receipt for pages without our extension: static, no script, every value escaped."""
    from html import escape  # it brings the names of all characters along, for pages alone

    colour = _GOOD if result.ok else _BAD
    line = f'<span style="color:{colour};font-weight:600">{escape(known["ending"])}</span>'
    for part in (result.language, describe_isolation(result.isolation), _limits(result)):
        line += f" · {escape(part)}" if part else ""
    for violation in known["violations"]:
        told = {name: escape(text) for name, text in violation.items()}
        remedy = f" → <code>{told['remedy']}</code>" if told["remedy"] else ""
        line += f"<div>refused: <code>{told['rule']}</code> {told['subject']}: {told['reason']}{remedy}</div>"
    for note in (*known["notes"], *_unusual(result)):
        line += f"<div>{escape(note)}</div>"
    # Text of a sandbox must not become a formula: MathJax can make links.
    return f'<div class="mathjax_ignore tex2jax_ignore" style="font-size:85%;opacity:.85">{line}</div>'


def _limits(result: ExecResult) -> str:
    """The limits in the units of the page, as the status bar shows them."""
    time_s, memory_mb = result.timeout, result.memory_limit_mb
    texts: list[str] = []
    if time_s is not None:
        texts.append(f"{time_s:g} s" if time_s < 120 else f"{_rounded(time_s / 60)} min")
    if memory_mb is not None:
        texts.append(f"{memory_mb} MB" if memory_mb < 1024 else f"{_rounded(memory_mb / 1024)} GB")
    return ", ".join(texts)


def _rounded(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _unusual(result: ExecResult) -> tuple[str, ...]:
    """Why WebAssembly was chosen; that a process was chosen is what everybody expects."""
    return (result.chosen,) if result.chosen and result.backend == "wasm" else ()


def mime_bundle(result: ExecResult, ending: str) -> dict[str, object]:
    """The three forms of a receipt; ``metadata`` for it is ``{MIME: measurements(result)}``."""
    known = facts(result, ending)
    return {MIME: known, "text/html": _html(known, result), "text/plain": _text(known, result)}
