"""Answers questions about Python code: completion, documentation, completeness. Runs in the worker, beside the objects.

The names that live objects have are found at once. Static analysis (jedi) knows more, but may take long until it has
read the libraries, so it runs under an alarm: when that rings, the answer comes from the live objects alone, and jedi
goes on between cells (``go_on``), so that it knows more the next time. IPython catches what the alarm raises, prints it
and answers with what it has so far; so ``AnswerAlarm`` remembers that it rang, and nothing is printed. The order of
matches is decided by the host, for every language (``session/code_answers.py``).
"""

from __future__ import annotations

import itertools
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Dict, List, Tuple

#: Seconds: for an answer, for jedi where there is a plain answer, and for jedi between cells.
PATIENCE_S, JEDI_S, GO_ON_S = 1.0, 0.3, 20.0
#: How often ``go_on`` looks whether the host has sent something.
_LOOK_S = 0.02
MAX_MATCHES = 1000
_TYPES = "_jupyter_types_experimental"


class TooSlow(BaseException):
    """Raised when the alarm rings. Not an ``Exception``, because jedi and IPython catch those."""


class AnswerAlarm:
    """Raises ``TooSlow`` in the block when its time or ``is_over()`` is over; restores the user's alarm."""

    rang = False

    def __init__(self, seconds: float = PATIENCE_S, is_over: Callable[[], bool] | None = None) -> None:
        self.end, self.is_over = time.monotonic() + seconds, is_over
        self.every = seconds if is_over is None else _LOOK_S

    def __enter__(self) -> AnswerAlarm:
        # A failure of an answer is no output of a cell.
        self.hook, sys.excepthook = sys.excepthook, lambda *error: None
        self.before = signal.signal(signal.SIGALRM, self.ring)
        self.timer = signal.setitimer(signal.ITIMER_REAL, self.every, _LOOK_S)
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
        """The signal handler: raise ``TooSlow`` when it is time."""
        if self.is_over is not None and time.monotonic() < self.end and not self.is_over():
            return
        self.rang = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise TooSlow


#: The completion (code and position) that jedi has still to finish; until then nobody waits for jedi.
_unfinished: List[Tuple[str, int]] = []
#: Whether jedi was in time when it ran last. Its first answers take long, on a busy machine seconds.
_quick: List[bool] = []


def complete(shell: Any, code: str, position: int) -> Dict[str, Any]:
    """Return matches with their types, in Jupyter's form."""
    found = in_time(shell, code, position, PATIENCE_S, jedi=False)
    if shell.Completer.use_jedi:
        better = in_time(shell, code, position, JEDI_S if found else PATIENCE_S) if _quick or not found else []
        _unfinished[:], _quick[:] = ([], [True]) if better else ([(code, position)], [])
        found = better or found
    start, end = (found[0].start, found[0].end) if found else (position, position)
    types = [
        {"start": item.start, "end": item.end, "text": item.text, "type": item.type, "signature": item.signature or ""}
        for item in found
    ]
    matches = [item.text for item in found]
    return {"matches": matches, "cursor_start": start, "cursor_end": end, "metadata": {_TYPES: types}}


def has_more() -> bool:
    """Whether jedi was too slow for the last completion."""
    return bool(_unfinished)


def go_on(shell: Any, is_over: Callable[[], bool]) -> None:
    """Let jedi go on with what it was too slow for, until ``is_over`` is true."""
    _quick[:] = [True] if in_time(shell, *_unfinished.pop(), GO_ON_S, is_over) else []


def in_time(
    shell: Any,
    code: str,
    position: int,
    seconds: float,
    is_over: Callable[[], bool] | None = None,
    *,
    jedi: bool = True,
) -> List[Any]:
    """Return IPython's completions, all for the same piece of text; none when they took too long to be complete."""
    from IPython.core.completer import provisionalcompleter, rectify_completions

    alarm, usual = AnswerAlarm(seconds, is_over), shell.Completer.use_jedi
    try:
        shell.Completer.use_jedi = jedi
        with alarm, provisionalcompleter():
            every = rectify_completions(code, shell.Completer.completions(code, position))
            found = list(itertools.islice(every, MAX_MATCHES))
    except TooSlow:
        return []
    finally:
        shell.Completer.use_jedi = usual
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
