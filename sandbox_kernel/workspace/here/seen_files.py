"""``SeenFiles``: the user's folder with a sandbox's changes, as the host reads and writes it for programs and agents.

Every path is first brought into one form; what is hidden from programs is hidden here too, with everything below it.
"""

from __future__ import annotations

import threading

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.workspace.here.hidden import is_hidden
from sandbox_kernel.workspace.here.kept_changes import KeptChanges
from sandbox_kernel.workspace.here.project_folder import ProjectFolder
from sandbox_kernel.workspace.tree.paths import display_name, names_beneath
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DirEntry


class SeenFiles:
    """The files of one ``HereFolder``; ``lock`` is held while they are looked at."""

    def __init__(self, lock: threading.RLock, kept: KeptChanges, project: ProjectFolder) -> None:
        self._lock, self._kept, self._project = lock, kept, project

    def where(self, path: str) -> Rooted:
        """Return the folder that has the version of a file that programs see. Raises ``InvalidRequest``."""
        name = "/".join(names_beneath(path))
        with self._lock:
            if name in self._kept.entries:
                return self._kept.root
            if is_hidden(name):
                raise InvalidRequest(
                    f"{display_name(name)!r} is hidden from programs, as other names under which secrets are kept: "
                    "%sandbox policy and the report list them; read a copy of another name"
                )
            return self._project.root

    def write(self, path: str, content: bytes) -> None:
        """Write a file as a change; a file that is there keeps its mode."""
        name = "/".join(names_beneath(path))
        with self._lock:
            known, mark = self._kept.entries.get(name), self._project.mark(name)
            users = 0o644 if mark is None or mark.is_folder else mark.mode
            has = known.mode if known is not None and not known.is_gone else users
            if known is not None and known.is_gone:
                self._kept.clear(name)
            self._kept.root.write(name, content, has & 0o777)
            self._kept.note_written(name)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with everything in it that is not hidden, as a change."""
        name = "/".join(names_beneath(path))
        with self._lock:
            below = [entry.path for entry in self._project.beneath(name) if not is_hidden(entry.path)]
            below += [known for known in self._kept.entries if known == name or known.startswith(f"{name}/")]
            if not below and (is_hidden(name) or self._project.mark(name) is None):
                raise InvalidRequest(f"there is no {display_name(name)!r} in the folder; box.list_dir() shows what is")
            for known in sorted({name, *below}, reverse=True):
                if is_hidden(known):
                    self._kept.forget(known)
                else:
                    self._kept.note_removed(known)

    def list_dir(self, path: str) -> tuple[DirEntry, ...]:
        """List a folder."""
        names = names_beneath(path, folder=True)
        prefix = "".join(f"{name}/" for name in names)
        with self._lock:
            found: dict[str, DirEntry] = {}
            problem: SandboxError | None = None
            try:
                found = {entry.name: entry for entry in self._project.root.list_dir(names or ".")}
            except SandboxError as error:
                problem = error
            for name in list(found):
                known = self._kept.entries.get(prefix + name)
                if is_hidden(prefix + name) or (known is not None and known.is_gone):
                    del found[name]
            inside = [entry for entry in self._kept.entries.items() if entry[0].startswith(prefix)]
            for full, known in inside:
                name = full[len(prefix) :]
                if "/" not in name and not known.is_gone:
                    found[name] = DirEntry(name, known.type, known.size)
                    problem = None
            own = self._kept.entries.get("/".join(names))
            if is_hidden("/".join(names)) and own is None:
                problem = problem or InvalidRequest(f"there is no folder {display_name(path)!r}")
            if problem is not None:
                raise problem
            return tuple(sorted(found.values(), key=lambda entry: entry.name))
