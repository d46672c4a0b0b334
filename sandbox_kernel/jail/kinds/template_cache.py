"""The templates of one pool: one for each kind of walls, up to a maximum, replaced when they are dead or old.

If there is a template, a jail is forked from it. If there is none, the jail is started by itself; no run waits for a
template. Templates are made in the background, by the thread that makes spares. If none can be made (the host does not
allow nested namespaces, or an imported module starts threads), jails are started one by one with the same walls, and
``unavailable`` returns the reason.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterable

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.jail.core.jail import Jail
from sandbox_kernel.jail.core.walls import Walls
from sandbox_kernel.jail.kinds.template import Template, kind_of
from sandbox_kernel.jail.kinds.template_jail import TemplateJail
from sandbox_kernel.jail.rules import bubblewrap

#: The most templates of one pool; the least recently used one is dropped first.
MAX_TEMPLATES = 6
#: After a template could not be made, the time until the next try.
RETRY_S = 60.0

_reasons: dict[str, None] = {}


def unavailable() -> str | None:
    """Return why a template could not be made in this process, for the report; None if all could."""
    return next(reversed(_reasons), None)


class NoLayer(Exception):
    """A jail that works on a folder of the host, copy-on-write, cannot be made; the message says why."""


class Templates:
    """Templates by kind; thread-safe. ``prepare`` makes them, ``fork`` uses them."""

    def __init__(self, most: int = MAX_TEMPLATES) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._ready: OrderedDict[Walls, Template] = OrderedDict()
        self._failed_at: dict[Walls, float] = {}
        self._why: dict[Walls, str] = {}
        self._retired: weakref.WeakSet[Template] = weakref.WeakSet()
        self._closed = False

    def fork(self, walls: Walls) -> Jail | None:
        """Return a ready jail, forked from the template of its kind; None when there is no usable template."""
        kind = kind_of(walls)
        with self._lock:
            template = self._ready.get(kind)
        if template is None or not template.current:
            return None
        try:
            jail = TemplateJail(walls, template)
            jail.wait_ready()
        except (SandboxError, OSError) as error:
            if template.alive:
                self._failed(kind, error)
            return None
        return jail

    def fork_over(self, walls: Walls) -> Jail:
        """Return a ready jail with a layer over the folder of its walls, which only forks of a template can have.

        Makes the template if there is none: of its kind, or for this one jail where templates are switched off. Raises
        ``NoLayer`` when the host allows no such jail.
        """
        if not walls.templates:
            return self._fork_once(walls)
        forked = self.fork(walls)
        if forked is None:
            self.prepare(walls)
            forked = self.fork(walls)
        if forked is None:
            with self._lock:
                why = self._why.get(kind_of(walls))
            raise NoLayer(why or "templates cannot be made here")
        return forked

    def _fork_once(self, walls: Walls) -> Jail:
        try:
            template = Template(kind_of(walls))
            template.wait_ready()
            try:
                jail = TemplateJail(walls, template)
                jail.wait_ready()
            finally:
                self._retire([template])
        except (SandboxError, OSError) as error:
            raise NoLayer(getattr(error, "message", str(error))) from None
        return jail

    def prepare(self, walls: Walls) -> None:
        """Make a template of this kind if there is none, or remember why it cannot be made. Slow."""
        if walls.enforcer != bubblewrap.NAME or not walls.templates:
            return
        kind = kind_of(walls)
        with self._making:
            with self._lock:
                known = self._ready.get(kind)
                failed_at = self._failed_at.get(kind)
                if known is not None:
                    self._ready.move_to_end(kind)
            if self._is_closed() or (known is not None and known.current):
                return
            if failed_at is not None and time.monotonic() - failed_at < RETRY_S:
                return
            made = self._make(kind)
            with self._lock:
                old = [known] if known is not None else []
                self._ready.pop(kind, None)
                if made is not None:
                    self._ready[kind] = made
                # The cache may have been closed meanwhile.
                while len(self._ready) > (0 if self._is_closed() else self._most):
                    old.append(self._ready.popitem(last=False)[1])
            self._retire(old)

    def _is_closed(self) -> bool:
        return self._closed

    def _make(self, kind: Walls) -> Template | None:
        try:
            template = Template(kind)
            template.wait_ready()
        except (SandboxError, OSError) as error:
            self._failed(kind, error)
            return None
        return template

    def _failed(self, kind: Walls, error: Exception) -> None:
        """Remember the reason, and retire a template that cannot fork."""
        reason = getattr(error, "message", str(error))
        _reasons.pop(reason, None)
        _reasons[reason] = None
        with self._lock:
            self._failed_at[kind] = time.monotonic()
            self._why[kind] = reason
            broken = self._ready.pop(kind, None)
        if broken is not None:
            self._retire([broken])

    def _retire(self, templates: Iterable[Template]) -> None:
        for template in templates:
            self._retired.add(template)
            template.retire()

    def keep_only(self, wanted: set[Walls]) -> None:
        """Retire templates of all other kinds."""
        kinds = {kind_of(walls) for walls in wanted}
        with self._lock:
            old = [self._ready.pop(kind) for kind in list(self._ready) if kind not in kinds]
        self._retire(old)

    def __len__(self) -> int:
        """Return the number of templates."""
        with self._lock:
            return len(self._ready)

    def close(self) -> None:
        """Retire every template and make no more. Those with jails end with their last jail."""
        with self._lock:
            self._closed = True
            old = list(self._ready.values())
            self._ready.clear()
        self._retire(old)

    def forget(self) -> None:
        """In a forked child the templates belong to the parent: close their descriptors and make new locks."""
        self._lock, self._making = threading.Lock(), threading.Lock()
        for template in (*self._ready.values(), *self._retired):
            template.forget()
        self._ready = OrderedDict()
