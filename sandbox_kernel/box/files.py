"""What a ``Sandbox`` offers to do with its files: in, out, compared, set up from a manifest, kept in a tar."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sandbox_kernel.errors import InvalidRequest, SandboxDestroyed
from sandbox_kernel.model import FsChange
from sandbox_kernel.workspace.box_folder import BoxFolder
from sandbox_kernel.workspace.transfer import Skipped
from sandbox_kernel.workspace.tree.paths import plain_path
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DirEntry

if TYPE_CHECKING:
    from sandbox_kernel.workspace.manifest import Manifest


class BoxFiles:
    """The part of the facade that is about the folder /box. Paths are relative to it, or begin with /box."""

    def __init__(self) -> None:
        self._folder = BoxFolder()
        self._owns_folder = True
        self._destroyed = False

    def share_files(self, other: BoxFiles) -> None:
        """Use the folder of another sandbox instead of one's own; called before anything runs here.

        Notebooks do so: cells under another policy are still cells of one notebook. It ends with the other one.
        """
        self._check_alive()
        self._folder, self._owns_folder = other._folder, False

    @property
    def files(self) -> Mapping[str, bytes]:
        """Every file by its path, each read when it is asked for; links, FIFOs and the like are not among them."""
        self._check_alive()
        return self._folder.files()

    def read_file(self, path: str | os.PathLike[str]) -> bytes:
        """The content of a file of this sandbox's folder."""
        self._check_alive()
        return self._folder.read(plain_path(path))

    def read_file_part(self, path: str | os.PathLike[str], offset: int, most: int) -> tuple[bytes, int]:
        """At most ``most`` bytes of a file from ``offset`` on, and the size of the whole file, which is not read."""
        self._check_alive()
        return self._folder.read_part(plain_path(path), offset, most)

    def write_file(self, path: str | os.PathLike[str], data: bytes | str) -> None:
        """Make or replace a file that later runs find in /box."""
        self._check_alive()
        self._folder.write(plain_path(path), data)

    def remove_file(self, path: str | os.PathLike[str]) -> None:
        """Remove a file, or a folder with all that is in it, so that later runs do not find it."""
        self._check_alive()
        with self._folder.changing() as root:
            root.remove(plain_path(path), tree=True)

    def list_dir(self, path: str | os.PathLike[str] = ".") -> tuple[DirEntry, ...]:
        """What a folder of this sandbox holds, sorted by name."""
        self._check_alive()
        return self._folder.list_dir(plain_path(path))

    def diff(self) -> tuple[FsChange, ...]:
        """What runs and ``write_file`` have changed since the sandbox was made."""
        self._check_alive()
        return self._folder.diff()

    def provision(self, manifest: Manifest | object, *, archives: str | os.PathLike[str] | None = None) -> None:
        """Put what a manifest lists into the folder; its JSON form is checked whole before anything is written.

        ``archives`` is the host's folder in which the tars of the manifest are looked for, and nowhere else.
        """
        self._check_alive()
        from sandbox_kernel.workspace.manifest import Manifest

        wanted = manifest if isinstance(manifest, Manifest) else Manifest.from_document(manifest)
        with self._folder.changing() as root:
            if archives is None:
                wanted.provision(root)
                return
            with Rooted.at(archives) as tars:
                wanted.provision(root, tars)

    def snapshot(self, path: str | os.PathLike[str]) -> tuple[Skipped, ...]:
        """Write the folder to a tar on the host, whole or not at all; what a tar cannot hold is returned."""
        self._check_alive()
        from sandbox_kernel.workspace.archive import save

        with self._folder.lock:
            return save(self._folder.opened(), path)

    def resume(self, path: str | os.PathLike[str]) -> None:
        """Go on with the files of a tar that ``snapshot`` wrote, in a sandbox that has none yet.

        The tar may have been in hostile hands: nothing is written unless every member is acceptable.
        """
        self._check_alive()
        from sandbox_kernel.workspace.archive import restore

        with self._folder.changing() as root:
            if root.list_dir("."):
                raise InvalidRequest(f"{os.fspath(path)!r} is resumed in a new sandbox; this one has files already")
            restore(path, root)

    def _check_alive(self) -> None:
        if self._destroyed:
            raise SandboxDestroyed("this sandbox was destroyed; make a new one: Sandbox()")
