"""Answers questions about Python code: completion, documentation, completeness. Runs in the worker, beside the objects.

Static analysis (jedi) knows types and documentation but may take long, so it runs under an alarm. When the alarm
rings, the answer comes from the live objects alone. IPython catches what the alarm raises, prints it and answers with
what it has so far; so ``AnswerAlarm`` remembers that it rang, and nothing is printed.
"""

from __future__ import annotations

import itertools
import signal
import sys

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

    rang = False

    def __enter__(self) -> AnswerAlarm:
        # A failure of an answer is no output of a cell.
        self.hook, sys.excepthook = sys.excepthook, lambda *error: None
        self.before = signal.signal(signal.SIGALRM, self.ring)
        self.timer = signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
        return self

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
        sys.excepthook = self.hook

    def ring(self, number: int, frame: FrameType | None) -> None:
        """The signal handler: raise ``TooSlow``."""
        self.rang = True
        raise TooSlow


def complete(shell: Any, code: str, position: int) -> Dict[str, Any]:
    """Return matches with their types, in Jupyter's form."""
    with_jedi = shell.Completer.use_jedi
    found = in_time(shell, code, position) if with_jedi else []
    if not found:
        shell.Completer.use_jedi = False
        try:
            found = in_time(shell, code, position)
        finally:
            shell.Completer.use_jedi = with_jedi
    start, end = (found[0].start, found[0].end) if found else (position, position)
    types = [
        {"start": item.start, "end": item.end, "text": item.text, "type": item.type, "signature": item.signature or ""}
        for item in found
    ]
    matches = [item.text for item in found]
    return {"matches": matches, "cursor_start": start, "cursor_end": end, "metadata": {_TYPES: types}}


def in_time(shell: Any, code: str, position: int) -> List[Any]:
    """Return IPython's completions, all for the same piece of text.

    Returns none when they took too long, because they would not be complete.
    """
    from IPython.core.completer import provisionalcompleter, rectify_completions

    alarm = AnswerAlarm()
    try:
        with alarm, provisionalcompleter():
            every = rectify_completions(code, shell.Completer.completions(code, position))
            found = list(itertools.islice(every, MAX_MATCHES))
    except TooSlow:
        return []
    return [] if alarm.rang else found


def inspect(shell: Any, code: str, position: int, detail: int = 0) -> Dict[str, Any]:
    """Return documentation of the name at a position as a MIME bundle; empty when there is none."""
    from IPython.utils.tokenutil import token_at_cursor

    try:
        with AnswerAlarm():
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
