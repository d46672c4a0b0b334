"""Which files of a user's folder a program does not see although it sees the folder: places where secrets are kept.

The list is public: ``HIDDEN`` is what the docs and the report show. It goes by names, at any depth. A secret in a file
of another name is not found. A look lists only folders that changed since the last one, so that it can be taken before
every run.
"""

from __future__ import annotations

import fnmatch
import os
import re
from dataclasses import dataclass

#: Names and patterns, as they are shown. A name with a slash means the end of a path.
HIDDEN = (
    ".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".pypirc", ".npmrc",
    ".git-credentials", ".git/config", ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker/config.json",
    ".config/gcloud", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "id_rsa", "id_dsa", "id_ecdsa",
    "id_ed25519", "credentials.json", "service_account*.json", "client_secret*.json", "secrets.toml", "secrets.y*ml",
    ".vault-token", "*.kdbx", ".htpasswd",
)  # fmt: skip
#: Names that match a pattern above and hold nothing secret.
SHOWN = (".env.example", ".env.sample", ".env.template", "cacert.pem")
#: Folders with more entries than this, all together, are not looked through to the end.
MOST_ENTRIES = 200_000

_single = re.compile("|".join(fnmatch.translate(name) for name in HIDDEN if "/" not in name), re.IGNORECASE)
_ends = tuple(name for name in HIDDEN if "/" in name)


def is_hidden(path: str) -> bool:
    """Whether a path, relative to the folder, is of a name that is hidden, or lies in a folder that is."""
    parts = path.split("/")
    return any(_matches("/".join(parts[: depth + 1]), name) for depth, name in enumerate(parts))


def _matches(path: str, name: str) -> bool:
    if name in SHOWN:
        return False
    return _single.match(name) is not None or any(path == end or path.endswith(f"/{end}") for end in _ends)


@dataclass
class _Listed:
    """One folder as it was listed: when it had changed last, its hidden names and its subfolders."""

    changed_ns: int
    hidden: tuple[str, ...]
    folders: tuple[str, ...]
    entries: int


class HiddenFiles:
    """Finds the hidden files and folders below one folder of the host; remembers what it has listed."""

    def __init__(self, root: str, named: frozenset[str] = frozenset()) -> None:
        self._root = root
        #: Paths that the user named, so that they are shown although their name is on the list.
        self._named = named
        self._listed: dict[str, _Listed] = {}
        self._found: tuple[str, ...] = ()

    def find(self) -> tuple[str, ...]:
        """Return the hidden paths that exist now, outermost only, sorted."""
        if not self._is_as_listed():
            self._found = self._look()
        return self._found

    def _is_as_listed(self) -> bool:
        """Whether every folder still holds the names that it held when it was listed."""
        if not self._listed:
            return False
        try:
            root_fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            for folder, known in self._listed.items():
                status = os.stat(folder or ".", dir_fd=root_fd, follow_symlinks=not folder)
                if status.st_mtime_ns != known.changed_ns:
                    return False
        except OSError:
            return False
        finally:
            os.close(root_fd)
        return True

    def _look(self) -> tuple[str, ...]:
        """List the folders that changed since they were listed, and return the hidden paths."""
        found: list[str] = []
        seen: dict[str, _Listed] = {}
        waiting, entries = [""], 0
        while waiting and entries < MOST_ENTRIES:
            folder = waiting.pop()
            listed = self._list(folder)
            if listed is None:
                continue
            seen[folder] = listed
            entries += listed.entries
            found += listed.hidden
            waiting += listed.folders
        self._listed = seen
        return tuple(sorted(found))

    def _list(self, folder: str) -> _Listed | None:
        path = os.path.join(self._root, folder) if folder else self._root
        try:
            changed_ns = os.stat(path, follow_symlinks=not folder).st_mtime_ns
            known = self._listed.get(folder)
            if known is not None and known.changed_ns == changed_ns:
                return known
            hidden: list[str] = []
            folders: list[str] = []
            count = 0
            with os.scandir(path) as scan:
                for item in scan:
                    count += 1
                    inner = f"{folder}/{item.name}" if folder else item.name
                    if _matches(inner, item.name) and inner not in self._named:
                        hidden.append(inner)
                    elif item.is_dir(follow_symlinks=False):
                        folders.append(inner)
        except OSError:
            return None
        return _Listed(changed_ns, tuple(hidden), tuple(folders), count)
