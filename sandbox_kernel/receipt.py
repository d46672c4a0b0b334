"""A result as a notebook shows it: one MIME bundle, made by a pure function.

nbval compares *data* and ignores *metadata*, so nothing measured (time, memory) may stand in the data: the page draws
those from ``measurements``. Used by ``ExecResult._repr_mimebundle_`` and by the notebook's renderer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox_kernel.model import ExecResult

MIME = "application/vnd.sandbox-kernel.run+json"

#: How a note begins that depends on the run, like a measurement, and so must not stand in the data.
THIS_TIME = "this time:"

_GOOD, _BAD = "#2e7d32", "#c62828"


def facts(result: ExecResult, ending: str) -> dict[str, object]:
    """What is the same at every run of the same program under the same limits."""
    return {
        "status": str(result.status),
        "ending": ending,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "limit": result.limit,
        "language": result.language,
        "backend": result.backend,
        "isolation": result.isolation,
        "timeout_s": result.timeout,
        "memory_limit_mb": result.memory_limit_mb,
        "stdout_truncated": result.stdout_truncated,
        "stderr_truncated": result.stderr_truncated,
        "rolled_back": result.rolled_back,
        "violations": [
            {"rule": v.rule, "subject": v.subject, "reason": v.reason, "remedy": v.remedy} for v in result.violations
        ],
        "notes": stable_notes(result),
    }


def stable_notes(result: ExecResult) -> list[str]:
    """The notes that come again with every run of the same program; those of one run begin with ``this time:``."""
    return [note for note in result.notes if not note.startswith(THIS_TIME)]


def measurements(result: ExecResult) -> dict[str, object]:
    """What differs from run to run, or from machine to machine; belongs into output metadata, never into data."""
    chosen = {"chosen": result.chosen} if result.chosen else {}
    return {
        "duration_s": result.duration,
        "compile_duration_s": result.compile_duration,
        "cpu_s": result.cpu_seconds,
        "peak_memory_bytes": result.peak_memory_bytes,
        "stdout_bytes": result.stdout_bytes,
        "stderr_bytes": result.stderr_bytes,
        "fuel_used": result.fuel_used,
        "notes": [note for note in result.notes if note.startswith(THIS_TIME)],
        **chosen,
    }


def _worth_telling(result: ExecResult) -> list[str]:
    """The stable notes, and why WebAssembly was chosen; that a process was chosen is what everybody expects."""
    return [*stable_notes(result), *([result.chosen] if result.chosen and result.backend == "wasm" else [])]


def _limits_text(result: ExecResult) -> str:
    parts = []
    if result.timeout is not None:
        parts.append(f"{result.timeout:g} s")
    if result.memory_limit_mb is not None:
        parts.append(f"{result.memory_limit_mb} MB")
    return ", ".join(parts)


def plain_text(result: ExecResult, ending: str) -> str:
    """The receipt for terminals: one line, then one line for each thing worth knowing."""
    head = f"[{result.language or 'run'} · {ending}"
    limits = _limits_text(result)
    if limits:
        head += f" · limits {limits}"
    lines = [f"{head} · {result.isolation or 'unknown isolation'}]"]
    lines += [
        f"  refused: {v.rule} {v.subject}: {v.reason}{f' → {v.remedy}' if v.remedy else ''}" for v in result.violations
    ]
    lines += [f"  note: {note}" for note in _worth_telling(result)]
    return "\n".join(lines)


def html(result: ExecResult, ending: str) -> str:
    """The receipt for pages without our extension: static, no script, every value escaped."""
    from html import escape  # it brings the names of all characters along, for pages alone

    colour = _GOOD if result.ok else _BAD
    cells = [
        f'<span style="color:{colour};font-weight:600">{escape(ending)}</span>',
        escape(result.language),
        escape(result.isolation),
        escape(_limits_text(result)),
    ]
    line = " · ".join(cell for cell in cells if cell)
    extra = "".join(
        f"<div>refused: <code>{escape(v.rule)}</code> {escape(v.subject)}: {escape(v.reason)}"
        + (f" → <code>{escape(v.remedy)}</code>" if v.remedy else "")
        + "</div>"
        for v in result.violations
    )
    extra += "".join(f"<div>{escape(note)}</div>" for note in _worth_telling(result))
    # Text of a sandbox must not become a formula: MathJax can make links.
    return f'<div class="mathjax_ignore tex2jax_ignore" style="font-size:85%;opacity:.85">{line}{extra}</div>'


def mime_bundle(result: ExecResult, ending: str) -> dict[str, object]:
    """The three forms of a receipt; ``metadata`` for it is ``{MIME: measurements(result)}``."""
    return {
        MIME: facts(result, ending),
        "text/html": html(result, ending),
        "text/plain": plain_text(result, ending),
    }
