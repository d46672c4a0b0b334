"""Answers questions about Python code: completion, documentation, completeness. Runs in the worker, beside the objects.

Static analysis (jedi) knows types and documentation but may take long, so it runs under an alarm. When the alarm
rings, the answer comes from the live objects alone.
"""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Dict, List

#: How long jedi may take, in seconds.
PATIENCE_S = 1.0
MAX_MATCHES = 1000
_TYPES = "_jupyter_types_experimental"


class TooSlow(BaseException):
    """Raised when the alarm rings. Not an ``Exception``, because jedi and IPython catch those."""


class AnswerAlarm:
    """Raises ``TooSlow`` in the block when its time is over; restores the user's own alarm afterwards."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        self.before = signal.signal(signal.SIGALRM, self.ring)
        self.timer = signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(self, *error: object) -> None:
        rings = True
        while rings:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, self.before)
                rings = False
            except TooSlow:
                # The alarm rang at the very end; the handler must still be removed.
                continue
        signal.setitimer(signal.ITIMER_REAL, *self.timer)

    @staticmethod
    def ring(number: int, frame: FrameType | None) -> None:
        """The signal handler: raise ``TooSlow``."""
        raise TooSlow


def complete(shell: Any, code: str, position: int) -> Dict[str, Any]:
    """Return matches with their types, in Jupyter's form."""
    found: List[Any] = []
    if shell.Completer.use_jedi:
        try:
            with AnswerAlarm(PATIENCE_S):
                found = completions(shell, code, position)
        except TooSlow:
            found = []
    if not found:
        before = shell.Completer.use_jedi
        shell.Completer.use_jedi = False
        try:
            with AnswerAlarm(PATIENCE_S):
                found = completions(shell, code, position)
        except TooSlow:
            found = []
        finally:
            shell.Completer.use_jedi = before
    start = found[0].start if found else position
    end = found[0].end if found else position
    matches = [item.text for item in found]
    types = [
        {"start": item.start, "end": item.end, "text": item.text, "type": item.type, "signature": item.signature or ""}
        for item in found
    ]
    return {"matches": matches, "cursor_start": start, "cursor_end": end, "metadata": {_TYPES: types}}


def completions(shell: Any, code: str, position: int) -> List[Any]:
    """Return IPython's completions, all for the same piece of text."""
    from IPython.core.completer import provisionalcompleter, rectify_completions

    found: List[Any] = []
    with provisionalcompleter():
        for item in rectify_completions(code, shell.Completer.completions(code, position)):
            found.append(item)
            if len(found) >= MAX_MATCHES:
                break
    return found


def inspect(shell: Any, code: str, position: int, detail: int = 0) -> Dict[str, Any]:
    """Return documentation of the name at a position as a MIME bundle; empty when there is none."""
    from IPython.utils.tokenutil import token_at_cursor

    try:
        with AnswerAlarm(PATIENCE_S):
            data = shell.object_inspect_mime(token_at_cursor(code, position), detail_level=detail)
    except (KeyError, TooSlow):
        return {}
    if not shell.enable_html_pager:
        data.pop("text/html", None)
    return {"data": {mime: text for mime, text in data.items() if isinstance(text, str)}}


def is_complete(shell: Any, code: str) -> Dict[str, Any]:
    """Say whether Enter should run the code or begin another line."""
    manager = getattr(shell, "input_transformer_manager", None) or shell.input_splitter
    status, indent = manager.check_complete(code)
    return {"status": status, "indent": " " * indent if isinstance(indent, int) else ""}
