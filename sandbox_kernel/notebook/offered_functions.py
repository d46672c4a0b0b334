"""``%sandbox functions NAME…``: functions of the Python kernel that sandboxed cells may call.

The functions stay in the kernel of the user; a cell gets their results (``from host import search``). Each name is
looked up when the command runs. A session has the functions that were offered when it began; one that is taken back is
refused in running sessions too.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Mapping

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.model import Language
from sandbox_kernel.notebook.sessions import NotebookSessions
from sandbox_kernel.session.session import Session

Functions = Mapping[str, Callable[..., object]]
#: What takes all functions back.
OFF = "off"


class OfferedFunctions:
    """The functions that a notebook offers to its cells."""

    def __init__(self) -> None:
        self._given: dict[str, Callable[..., object]] = {}
        #: The sessions that had begun when functions were offered the last time.
        self._began_before: weakref.WeakSet[Session] = weakref.WeakSet()

    def give_to(self, box: Sandbox) -> None:
        """Let programs of this sandbox call the functions. Raises ``InvalidRequest`` for one that cannot be offered."""
        box.offer_functions({name: self._revocable(name, call) for name, call in self._given.items()} or None)

    def _revocable(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(call)
        def offered(*args: object, **kwargs: object) -> object:
            if name not in self._given:
                raise PermissionError(f"{name} is not offered any more; the user took it back: %sandbox functions off")
            return call(*args, **kwargs)

        return offered

    def __bool__(self) -> bool:
        """Whether any function is offered."""
        return bool(self._given)

    def change(
        self,
        names: tuple[str, ...],
        variables: Mapping[str, object] | None,
        boxes: list[Sandbox],
        running: Iterable[Session],
    ) -> None:
        """Offer more functions to these sandboxes, or none at all any more. Nothing changes when one is refused.

        Args:
            names: Names of variables of the notebook, or ``off`` alone.
            variables: The variables of the Python kernel; None where a notebook has none.
            boxes: The sandboxes of the notebook; at least one.
            running: The sessions that have begun.

        """
        before = dict(self._given)
        self._given = {} if names == (OFF,) else {**before, **{name: _function(name, variables) for name in names}}
        try:
            for box in boxes:
                self.give_to(box)
        except InvalidRequest:
            self._given = before
            for box in boxes:
                self.give_to(box)
            raise
        self._began_before.update(running)

    def told(self, box: Sandbox, language: Language, sessions: NotebookSessions) -> str:
        """Return what cells may call now, and which running sessions began without it."""
        listed = box.describe_functions(language)
        if not listed:
            return "Cells may call no functions of this notebook; %sandbox functions NAME offers one."
        running = sorted({str(key[0]) for key, each in sessions.with_state().items() if each in self._began_before})
        late = (
            f"\nThe running {' and '.join(running)} session began before this: %sandbox restart --keep begins one that "
            "has the functions and the variables."
        )
        return f"Cells may call, and get results:\n{listed.rstrip()}{late if running else ''}"


def _function(name: str, variables: Mapping[str, object] | None) -> Callable[..., object]:
    if variables is None:
        raise InvalidRequest(
            f"%sandbox functions {name}: functions that stay outside are those of the Python kernel; open the notebook "
            "with the Python kernel and %load_ext sandbox_kernel there"
        )
    if name not in variables:
        raise InvalidRequest(f"%sandbox functions {name}: this notebook has no {name}; define it in a Python cell")
    found = variables[name]
    if not callable(found):
        raise InvalidRequest(f"%sandbox functions {name}: {name} is no function but a {type(found).__name__}")
    return found
