"""``KernelFolder``: the user's folder of one wrapped kernel, copy-on-write, while the kernel lives.

The kernel sees the folder in its work folder and changes a layer over it, or a private copy where the host allows no
layer. What it changed is kept when a cell is over: a kernel that a limit ends in a cell leaves nothing of that cell.
Writing to the user's folder is a command of the user's, ``sandbox-kernel changes --apply``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from sandbox_kernel.box.files import here_folder
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.enforcer import start_jail
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.rules import bubblewrap
from sandbox_kernel.jail.template import NoLayer, Templates
from sandbox_kernel.jail.walls import Places, Walls
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.workspace.changes import displayed
from sandbox_kernel.workspace.folder_link import FolderLink
from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder
from sandbox_kernel.workspace.overlay.project import ProjectFolder
from sandbox_kernel.workspace.overlay.session_layer import SessionLayer
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.wrapped.kept_changes import (
    ChangesAnswer,
    ChangesAsked,
    ChangesPlace,
    PlaceFacts,
    Wish,
    answer,
    claim,
)
from sandbox_kernel.wrapped.wrap_options import WrapOptions

#: Set by Jupyter's server: the path of the notebook whose kernel this is.
_NOTEBOOK = "JPY_SESSION_NAME"


@dataclass(frozen=True)
class CellChanges:
    """What a cell changed, and notes on that: what could not be kept, and what git inside takes for deleted."""

    changes: tuple[FsChange, ...] = ()
    missing: tuple[Note, ...] = ()


class KernelFolder:
    """See the module. Used by the relay's thread and the thread of the kernel's job; a lock keeps them apart."""

    def __init__(self, options: WrapOptions, environment: Mapping[str, str] = os.environ) -> None:
        try:
            started = os.getcwd()
        except OSError:
            raise InvalidRequest(
                "the folder in which the kernel is started was removed; open the notebook anew"
            ) from None
        wanted = os.path.normpath(os.path.join(started, options.here))
        project = ProjectFolder(wanted).path
        facts = PlaceFacts(project, environment.get(_NOTEBOOK, ""), os.path.basename(options.command[0]))
        #: Where its changes stay.
        self.place: ChangesPlace = claim(facts, (options.policy, *options.mounts, *options.domains))
        self._folder: HereFolder = here_folder(project, self.place.changes)
        self._link = FolderLink(self._folder)
        self._lock = threading.RLock()
        self._jail: Jail | None = None
        self._layer: SessionLayer | None = None
        #: What was changed between two cells: the next cell's reply tells it.
        self._early = CellChanges()
        #: What the first cell says.
        self._unsaid = [notes.wrapped_changes_found(self._folder.found)] if self._folder.found else []
        inside = os.path.realpath(started)
        self._below = os.path.relpath(inside, project) if inside.startswith(f"{project}/") else ""

    def start_jail(self, walls: Walls) -> Jail:
        """Start the jail of the kernel with the folder in it."""
        try:
            if walls.enforcer != bubblewrap.NAME:
                raise NoLayer("only bubblewrap's walls have file systems of their own")
            jail = Templates().fork_over(replace(walls, here=self._folder.path, here_id=self._folder.identity()))
        except NoLayer as error:
            self._unsaid.append(notes.folder_copied(str(error)))
            jail = start_jail(walls)
            jail.wait_ready()
        try:
            if jail.layer_fd >= 0:
                self._layer = SessionLayer(self._folder, jail.box_fd, jail.layer_fd, jail.settings_fd)
            with Rooted(jail.box_fd) as box:
                self._unsaid += self._link.begin_over(self._layer, box)
                self._link.bring_in(box, lambda: None)
            self._link.look.settle()
        except BaseException:
            jail.destroy()
            raise
        self._jail = jail
        return jail

    def start_folder(self, places: Places) -> str:
        """Return the kernel's working directory: the notebook's folder inside, if it is in the folder."""
        return os.path.join(places.work, self._below) if self._below else places.work

    def before_cell(self) -> tuple[Note, ...]:
        """Bring in what the user applied or dropped since the last cell, and hide new secrets. Returns what to say."""
        with self._lock:
            said, self._unsaid = tuple(self._unsaid), []
            if self._jail is None:
                return said
            with Rooted(self._jail.box_fd) as box:
                written, _ = self._link.bring_in(box, self._keep_early)
                if written:
                    self._link.look.settle(written)
            return said

    def _keep_early(self) -> None:
        """Keep what programs have changed between two cells, before the host writes into their folder."""
        found = self.after_cell()
        self._early = CellChanges((*self._early.changes, *found.changes), (*self._early.missing, *found.missing))

    def after_cell(self) -> CellChanges:
        """Keep what changed since the last cell, and return it. Raises ``SandboxError`` or ``OSError``."""
        with self._lock:
            if self._jail is None:
                return CellChanges()
            early, self._early = self._early, CellChanges()
            seen = self._link.look.changes()
            missing = [*self._link.keep_changes(seen), *self._folder.project.git_notes(seen.changes)]
            changes = displayed(seen.changes)
            told = {change.path for change in changes}
            rest = (change for change in early.changes if change.path not in told)
            return CellChanges((*rest, *changes), (*early.missing, *missing))

    def leave(self, *, keep: bool) -> None:
        """The kernel has ended and its jail is about to: keep what changed since the last cell, or not."""
        with self._lock:
            if keep:
                self.after_cell()
            self._jail = None

    def close(self) -> None:
        """Let others have the place; removed when there is no change. May be called twice."""
        with self._lock:
            empty = not self._folder.diff()
            self._folder.close()
            self.place.close(empty=empty)

    def answer(self, asked: ChangesAsked) -> ChangesAnswer:
        """Answer a question of the user's. The kernel sees at once what was dropped.

        Only what is shown takes a new look: what a thread of the kernel changes meanwhile is not applied.
        """
        with self._lock:
            if asked.wish in (Wish.LIST, Wish.PATCH):
                self.after_cell()
            said = answer(self._folder, asked)
            self._unsaid += self.before_cell()
            return said
