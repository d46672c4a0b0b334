"""The file methods of ``Sandbox``: the work folder, and a folder of the user to work on, copy-on-write."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sandbox_kernel.errors import BackendUnavailable, InvalidRequest, SandboxDestroyed
from sandbox_kernel.limits import MAX_READ_BYTES
from sandbox_kernel.model import FsChange
from sandbox_kernel.util.own_folder import make_own_folder
from sandbox_kernel.workspace.box_folder import BoxFolder
from sandbox_kernel.workspace.transfer import Skipped
from sandbox_kernel.workspace.tree.paths import plain_path
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DirEntry

if TYPE_CHECKING:
    from sandbox_kernel.workspace.folder_link import FolderLink
    from sandbox_kernel.workspace.manifest import Manifest
    from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder
    from sandbox_kernel.workspace.overlay.patch import WholePatch


class BoxFiles:
    """The file methods of ``Sandbox``. Paths are relative to the work folder ``/box``, or begin with ``/box``.

    All raise ``PathTraversal`` for a path that leads out of the work folder, and ``InvalidRequest`` for one that is not
    there or is not what the method needs.
    """

    _destroyed = False

    def __init__(self, here: str | os.PathLike[str] | None = None) -> None:
        #: The folder of the user that programs work on; it is the work folder then.
        self._here = None if here is None else here_folder(here)
        self._folder: BoxFolder = BoxFolder() if self._here is None else self._here
        self._owns_folder = True

    def share_files(self, other: BoxFiles) -> None:
        """Use the work folder of another sandbox, which removes it. Called by the notebook, before the first run."""
        self._check_alive()
        self._folder, self._here, self._owns_folder = other._folder, other._here, False

    def keep_files_in(self, place: str) -> None:
        """Have the work folder at a place that stays when the sandbox is destroyed. Call it before the first run.

        No other user may be able to change ``place``; what is in it is in the work folder. It is made where it is not.
        """
        self._check_alive()
        try:
            make_own_folder(place)
        except OSError as error:
            raise BackendUnavailable(f"files cannot be kept in {place!r}: {error}; name a folder of yours") from None
        self._folder, self._here = BoxFolder(place), None

    def clear_files(self) -> None:
        """Remove all files of the work folder. Sessions see it before their next cell.

        Raises ``InvalidRequest`` in a sandbox that works on a folder of the host: ``discard`` drops changes there.
        """
        self._check_alive()
        if self.here is not None:
            raise InvalidRequest(
                f"this sandbox works on {self.here!r}; what was changed in it is dropped by "
                "box.discard(), %sandbox discard"
            )
        self._folder.forget(list(self._folder.kept.entries))

    @property
    def files(self) -> Mapping[str, bytes]:
        """Contents of all regular files by path. A file is read when its key is looked up; links are left out."""
        return self._alive().files()

    def read_file(self, path: str | os.PathLike[str], *, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """Return the whole content of one file; a larger one is refused with ``InvalidRequest``."""
        return self._alive().holding(plain_path(path)).read(plain_path(path), max_bytes)

    def read_file_part(self, path: str | os.PathLike[str], offset: int, most: int) -> tuple[bytes, int]:
        """Return at most ``most`` bytes of a file from ``offset`` on, and the size of the whole file."""
        return self._alive().holding(plain_path(path)).read_part(plain_path(path), offset, most)

    def write_file(self, path: str | os.PathLike[str], data: bytes | str) -> None:
        """Create or replace a file, and missing folders, for later runs and sessions; text is written as UTF-8."""
        self._alive().write(plain_path(path), data)

    def remove_file(self, path: str | os.PathLike[str]) -> None:
        """Remove a file, or a folder with everything in it."""
        self._alive().remove(plain_path(path))

    def copy_in(self, folder: str | os.PathLike[str], path: str, *, again: bool = False) -> tuple[str, ...]:
        """Copy a file or folder below a folder of the host to the same path in ``/box``; returns the files' paths.

        Links are not followed, and secrets in a folder are left out (``workspace/hidden.py``). ``again``: it was copied
        before and may be replaced. Raises ``InvalidRequest`` when it is too large or the work folder has one already.
        """
        self._check_alive()
        from sandbox_kernel.policy.written_folders import real_path
        from sandbox_kernel.workspace.copy_in import copy_from_host

        if self.here is not None:
            raise InvalidRequest(
                f"{path!r} is not copied: programs of this sandbox work on {self.here!r} and see it there"
            )
        with contextlib.suppress(OSError):  # the next line says why it cannot be opened
            folder = real_path(os.path.join(os.getcwd(), folder))
        with Rooted.at(folder) as host:
            return copy_from_host(host, self._folder, path, again=again)

    def list_dir(self, path: str | os.PathLike[str] = ".") -> tuple[DirEntry, ...]:
        """List one folder, sorted by name: its files, folders and links."""
        return self._alive().list_dir(plain_path(path))

    def diff(self) -> tuple[FsChange, ...]:
        """List what runs, sessions and ``write_file`` have created, modified or deleted since the sandbox was made.

        With ``here`` this is what differs from the user's folder, and what ``apply`` would write there.
        """
        return self._alive().diff()

    def _link(self) -> FolderLink:
        from sandbox_kernel.workspace.folder_link import FolderLink  # only sessions need it

        return FolderLink(self._folder)

    def provision(self, manifest: Manifest | object) -> None:
        """Write what a ``Manifest``, or its JSON form, lists into the work folder; checks all of it first."""
        from sandbox_kernel.workspace.manifest import Manifest

        wanted = manifest if isinstance(manifest, Manifest) else Manifest.from_document(manifest)
        wanted.provision(self._alive())

    def snapshot(self, path: str | os.PathLike[str]) -> tuple[Skipped, ...]:
        """Save the work folder to a tar file of the host, all or nothing; returns what it cannot hold, with reasons."""
        from sandbox_kernel.workspace.archive import save

        with self._alive().lock:
            return save(self._folder.opened(), path)

    # The folder of the user.

    def patch(self, paths: Iterable[str] | None = None) -> str:
        """Return the changes to the folder ``here`` as a unified diff, which ``git apply`` takes.

        ``paths`` are files, folders or patterns; all by default. A file that is not text is one line with its size.
        """
        return self._works_on("patch").patch(paths)

    def whole_patch(self, paths: Iterable[str] | None = None) -> WholePatch:
        """Return the changes to the folder ``here`` as a patch for ``git apply``, files that are not text included.

        ``left_out`` of the result has the changes that no patch can carry or that are too large for one.
        """
        return self._works_on("whole_patch").whole_patch(paths)

    def digest(self) -> str:
        """Return a text that names the present state of the changes to the folder ``here``; another after every change.

        Take it before ``diff`` or ``patch``, and give it to ``apply``: what is written is then what was shown.
        """
        return self._works_on("digest").digest()

    def apply(
        self, paths: Iterable[str] | None = None, *, by_user: bool = True, shown: str | None = None
    ) -> tuple[FsChange, ...]:
        """Write changes to the folder ``here``: all of them or none.

        Without ``paths``, only ordinary content is written. What a tool of the host runs or obeys by itself (names that
        begin with a dot, new programs, builds, environments), links that leave the folder or take the place of
        something, notebooks of the user and secrets are left out; they are applied when they are named. So are sources
        where hooks, editors or agents of the user may run them unasked (``why_left_out``); ``.`` names all.

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
        """
        return self._works_on("apply").apply(paths, by_user=by_user, shown=shown)

    def left_out(self) -> tuple[str, ...]:
        """List the changes to the folder ``here`` that ``apply`` writes only when they are named."""
        return self._works_on("left_out").left_out()

    def why_left_out(self) -> str:
        """Return why sources are among what ``left_out`` lists, as a sentence; empty where none is.

        Hooks, editors and agents of the user may run them unasked. ``apply(["."])`` writes them all.
        """
        return self._works_on("why_left_out").why_left_out()

    def discard(self, paths: Iterable[str] | None = None) -> tuple[FsChange, ...]:
        """Drop changes to the folder ``here``, all or at ``paths``, and return them; the user's version is back."""
        return self._works_on("discard").discard(paths)

    @property
    def here(self) -> str | None:
        """The real path of the user's folder that programs work on, copy-on-write; None without one."""
        return None if self._here is None else self._here.path

    def work_on(self, here: str | os.PathLike[str], keep_in: str | None = None) -> int:
        """Work on a folder of the host from now on, copy-on-write; the same as ``Sandbox(here=…)``.

        Changes stay in ``keep_in``, a private folder of the host, when the sandbox is destroyed; without it they end.
        Returns how many changes of an earlier sandbox were there. Raises ``InvalidRequest`` when the sandbox has files.
        """
        self._check_alive()
        wanted = here_folder(here, keep_in)
        if self.here == wanted.path:
            return 0
        if self._folder.is_used or not self._owns_folder:
            has = f"works on {self.here!r}" if self.here is not None else "has files of its own already"
            raise InvalidRequest(f"here={os.fspath(here)!r}: this sandbox {has}; make another one: Sandbox(here=…)")
        self._folder = self._here = wanted
        return wanted.found

    def keep_changes_in(self, place: str) -> None:
        """Copy the changes to the folder ``here`` to a private place, where ``work_on`` finds them again."""
        self._works_on("keep_changes_in").keep_in(place)

    def _works_on(self, asked: str) -> HereFolder:
        self._check_alive()
        if self._here is None:
            raise InvalidRequest(f"{asked} is for a sandbox that works on a folder; make it with Sandbox(here='.')")
        return self._here

    def _alive(self) -> BoxFolder:
        self._check_alive()
        return self._folder

    def _check_alive(self) -> None:
        if self._destroyed:
            raise SandboxDestroyed("this sandbox was destroyed; make a new one: Sandbox()")


def here_folder(here: str | os.PathLike[str], keep_in: str | None = None) -> HereFolder:
    """Return the folder of a sandbox that works on a folder of the user."""
    from sandbox_kernel.workspace.overlay.kept_changes import ChangeLog  # most sandboxes have a folder of their own
    from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder

    try:
        log = None if keep_in is None else ChangeLog(keep_in)
    except OSError as error:
        raise BackendUnavailable(
            f"changes to {os.fspath(here)!r} cannot be kept in {keep_in!r}: {error}; see to the host's disk, or keep "
            "nothing: SANDBOX_KERNEL_KEEP_FILES=0"
        ) from None
    return HereFolder(here, log)
