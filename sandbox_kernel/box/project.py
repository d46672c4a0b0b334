"""The methods of ``Sandbox`` on a folder of the user: work on it copy-on-write, show, apply and drop the changes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sandbox_kernel.errors import BackendUnavailable, InvalidRequest, SandboxDestroyed
from sandbox_kernel.model import FsChange
from sandbox_kernel.workspace.box_folder import BoxFolder

if TYPE_CHECKING:
    from sandbox_kernel.workspace.here.here_folder import HereFolder
    from sandbox_kernel.workspace.here.patch import WholePatch


class BoxProject:
    """Base class of the file methods of ``Sandbox``, which make ``_folder``."""

    _folder: BoxFolder
    _owns_folder: bool
    _destroyed = False

    def patch(self, paths: Iterable[str] | None = None) -> str:
        """Return the changes to the folder ``here`` as a unified diff, which ``git apply`` takes.

        Args:
            paths: Files, folders or patterns to show; all by default.

        Returns:
            The diff. A file that is not text is one line with its size.

        """
        return self._works_on("patch").patch(paths)

    def whole_patch(self, paths: Iterable[str] | None = None) -> WholePatch:
        """Return the changes to the folder ``here`` as a patch for ``git apply``, files that are not text included.

        Args:
            paths: Files, folders or patterns; all by default.

        Returns:
            ``text``, and in ``left_out`` the changes that no patch can carry or that are too large for one.

        """
        return self._works_on("whole_patch").whole_patch(paths)

    def digest(self) -> str:
        """Return a text that names the present state of the changes to the folder ``here``.

        Take it before ``diff`` or ``patch``, and give it to ``apply``: what is written is then what was shown.

        Returns:
            Another text after every change, whoever makes it.

        """
        return self._works_on("digest").digest()

    def apply(
        self, paths: Iterable[str] | None = None, *, by_user: bool = True, shown: str | None = None
    ) -> tuple[FsChange, ...]:
        """Write changes to the folder ``here``: all of them or none.

        Without ``paths``, only ordinary content is written. What a tool of the host runs or obeys by itself (names that
        begin with a dot, new programs, builds, environments, what git's settings name), links that leave the folder or
        take the place of something, notebooks of the user and secrets are left out; they are applied when they are
        named.

        Args:
            paths: Files, folders or patterns to apply; all by default.
            by_user: Whether the user chose the paths. Where a program or a model did, changes that need naming are left
                out although they are named.
            shown: The ``digest`` of the state that the user was shown; without it the present one is written.

        Returns:
            What was written.

        Raises:
            NotAsShown: The changes are not those that were ``shown``. Nothing was written.
            Conflict: The user's version of a file has changed since; ``.paths`` names them. Nothing was written.
            InvalidRequest: Nothing changed at one of the paths, or the sandbox works on no folder.

        """
        return self._works_on("apply").apply(paths, by_user=by_user, shown=shown)

    def left_out(self) -> tuple[str, ...]:
        """List the changes to the folder ``here`` that ``apply`` writes only when they are named.

        Returns:
            Their paths: all that is not ordinary content.

        """
        return self._works_on("left_out").left_out()

    def discard(self, paths: Iterable[str] | None = None) -> tuple[FsChange, ...]:
        """Drop changes to the folder ``here``; programs then see the user's version again.

        Args:
            paths: Files, folders or patterns to drop; all by default.

        Returns:
            What was dropped.

        """
        return self._works_on("discard").discard(paths)

    @property
    def here(self) -> str | None:
        """The real path of the user's folder that programs work on, copy-on-write; None without one."""
        return None if self._here is None else self._here.path

    @property
    def _here(self) -> HereFolder | None:
        if type(self._folder) is BoxFolder:
            return None
        from sandbox_kernel.workspace.here.here_folder import HereFolder

        return self._folder if isinstance(self._folder, HereFolder) else None

    def work_on(self, here: str | os.PathLike[str], keep_in: str | None = None) -> int:
        """Work on a folder of the host from now on, copy-on-write; the same as ``Sandbox(here=…)``.

        Args:
            here: The folder.
            keep_in: A private folder of the host in which changes stay when the sandbox is destroyed; by default they
                are dropped with it.

        Returns:
            How many changes of an earlier sandbox were in ``keep_in`` and are there again.

        Raises:
            InvalidRequest: There is no such folder, or the sandbox has files already.

        """
        self._check_alive()
        wanted = here_folder(here, keep_in)
        if self.here == wanted.path:
            return 0
        if self._folder.is_used or not self._owns_folder:
            has = f"works on {self.here!r}" if self.here is not None else "has files of its own already"
            raise InvalidRequest(f"here={os.fspath(here)!r}: this sandbox {has}; make another one: Sandbox(here=…)")
        self._folder = wanted
        return wanted.found

    def keep_changes_in(self, place: str) -> None:
        """Copy the changes to the folder ``here`` to a place where ``work_on`` finds them again.

        Args:
            place: A folder of the host that no other user can change; it is made if it is not there.

        """
        self._works_on("keep_changes_in").keep_in(place)

    def _works_on(self, asked: str) -> HereFolder:
        self._check_alive()
        if self._here is None:
            raise InvalidRequest(f"{asked} is for a sandbox that works on a folder; make it with Sandbox(here='.')")
        return self._here

    def _check_alive(self) -> None:
        if self._destroyed:
            raise SandboxDestroyed("this sandbox was destroyed; make a new one: Sandbox()")


def here_folder(here: str | os.PathLike[str], keep_in: str | None = None) -> HereFolder:
    """Return the folder of a sandbox that works on a folder of the user."""
    from sandbox_kernel.workspace.here.here_folder import HereFolder
    from sandbox_kernel.workspace.here.kept_changes import ChangeLog  # most sandboxes have a folder of their own

    try:
        log = None if keep_in is None else ChangeLog(keep_in)
    except OSError as error:
        raise BackendUnavailable(
            f"changes to {os.fspath(here)!r} cannot be kept in {keep_in!r}: {error}; see to the host's disk, or keep "
            "nothing: SANDBOX_KERNEL_KEEP_FILES=0"
        ) from None
    return HereFolder(here, log)
