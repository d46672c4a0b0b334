"""Which files of a user's folder a program does not see although it sees the folder: places where secrets are kept.

The list is public: ``HIDDEN`` is what the docs and the report show. It goes by names, at any depth. A secret in a file
of another name is not found. A look lists only folders that changed since the last one, so that it can be taken before
every run.
"""

from __future__ import annotations

import fnmatch
import os
import re
import time
from dataclasses import dataclass

from sandbox_kernel.errors import InvalidRequest

#: Names and patterns, as they are shown. A name with a slash means the end of a path.
HIDDEN = (
    ".env", ".env.*", "*.env", ".envrc", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".pypirc", ".npmrc",
    ".git-credentials", ".git/config", ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker/config.json",
    ".config/gcloud", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "id_rsa", "id_dsa", "id_ecdsa",
    "id_ed25519", "credentials.json", "service_account*.json", "client_secret*.json", "secrets.toml", "secrets.y*ml",
    ".vault-token", "*.kdbx", ".htpasswd", ".sandbox-kernel-apply-*", ".git/modules/*/config",
    ".git/worktrees/*/config.worktree", ".git/config.worktree", "kaggle.json", ".Renviron", ".databrickscfg", ".s3cfg",
    ".boto", ".dockercfg", ".config/gh/hosts.yml", ".huggingface/token", "pip.conf", ".condarc", "*.tfstate",
    ".bash_history",
)  # fmt: skip
#: Names that match a pattern above and hold nothing secret.
SHOWN = (".env.example", ".env.sample", ".env.template", "cacert.pem")
#: A folder with more entries than this, all together, is refused: nobody knows which secrets are in it.
MOST_ENTRIES = 1_000_000
#: With no more folders than this, secrets that are put in while a session runs are looked for before every cell.
FEW_FOLDERS = 100
#: The most files of one changed folder that are remembered.
MOST_RELISTED = 2000
_REPOSITORY = (".git", "HEAD")
_CLOCK_STEP_NS = 50_000_000

_single = re.compile("|".join(fnmatch.translate(name) for name in HIDDEN if "/" not in name), re.IGNORECASE)
_ends = re.compile(
    "|".join(fnmatch.translate(form) for name in HIDDEN if "/" in name for form in (name, f"*/{name}")), re.IGNORECASE
)
#: What editors and people add to the name of a file that they keep beside the new one.
_BACKUP = re.compile(r"^[.#]?(?P<name>.+?)(?:~|#|\.(?:bak|old|orig|save|backup|sw[a-p]))$", re.IGNORECASE)


def is_hidden(path: str) -> bool:
    """Whether a path, relative to the folder, is of a name that is hidden, or lies in a folder that is.

    Goes by the names alone: every door that answers a program or an agent asks here, whether the file is there or not.
    The path has plain names between its slashes (``names_beneath``).
    """
    parts = path.split("/")
    return any(_matches("/".join(parts[: depth + 1]), name) for depth, name in enumerate(parts))


def _matches(path: str, name: str) -> bool:
    if name in SHOWN:
        return False
    if _single.match(name) is not None or _ends.match(path) is not None:
        return True
    backup = _BACKUP.match(name)
    if backup is None:
        return False
    of = backup["name"]
    above = path[: -len(name)]
    return any(_single.match(one) is not None or _ends.match(above + one) is not None for one in (of, f".{of}"))


@dataclass
class _Listed:
    """One folder as it was listed: when it had changed last, its hidden names, its subfolders and what is marked."""

    changed_ns: int
    hidden: tuple[str, ...]
    folders: tuple[str, ...]
    entries: int
    marked: tuple[str, ...]


class HiddenFiles:
    """Finds the hidden files and folders below one folder of the host; remembers what it has listed."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._listed: dict[str, _Listed] = {}
        self._found: tuple[str, ...] = ()
        self._relisted: dict[str, tuple[int, dict[str, int]]] = {}
        self._looks = 0

    @property
    def is_small(self) -> bool:
        """Whether a look is so cheap that it can be taken before every cell."""
        return 0 < len(self._listed) <= FEW_FOLDERS

    def find(self) -> tuple[str, ...]:
        """Return the hidden paths that exist now, outermost only, sorted.

        Raises ``InvalidRequest`` for a folder that is too large to be looked through.
        """
        if not self._is_as_listed():
            self._found = self._look()
        return self._found

    def marked(self) -> list[str]:
        """Return the links among what ``find`` has listed, and what tells a repository: ``.git`` and ``HEAD``."""
        return [path for known in self._listed.values() for path in known.marked]

    def relisted(self, since: int) -> tuple[int, dict[str, int]]:
        """Return the files of folders that changed after a look, by path with their inodes, and the last look's number.

        Folders with many files, and those that changed long ago, are left out.
        """
        files = (known for number, known in self._relisted.values() if number > since)
        return self._looks, {path: inode for known in files for path, inode in known.items()}

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
        self._looks += 1
        found: list[str] = []
        seen: dict[str, _Listed] = {}
        waiting, entries = [""], 0
        while waiting:
            if entries > MOST_ENTRIES:
                raise InvalidRequest(
                    f"{self._root!r} holds more than {MOST_ENTRIES} files and folders, too many to find the secrets "
                    "among them that programs must not see; name a smaller folder"
                )
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
            # Times have the resolution of the kernel's clock: a young folder can change again and keep its time.
            young = changed_ns > time.time_ns() - _CLOCK_STEP_NS
            known = self._listed.get(folder)
            if known is not None and known.changed_ns == changed_ns:
                return known
            hidden: list[str] = []
            folders: list[str] = []
            marked: list[str] = []
            files: dict[str, int] = {}
            count = 0
            with os.scandir(path) as scan:
                for item in scan:
                    count += 1
                    inner = f"{folder}/{item.name}" if folder else item.name
                    if item.is_symlink() or item.name in _REPOSITORY:
                        marked.append(inner)
                    if _matches(inner, item.name):
                        hidden.append(inner)
                    elif item.is_dir(follow_symlinks=False):
                        folders.append(inner)
                    elif known is not None and len(files) < MOST_RELISTED:
                        files[inner] = item.inode()
        except OSError:
            return None
        if known is not None:
            self._relisted.pop(folder, None)
            self._relisted[folder] = self._looks, files
            while len(self._relisted) > FEW_FOLDERS:
                del self._relisted[next(iter(self._relisted))]
        return _Listed(-1 if young else changed_ns, tuple(hidden), tuple(folders), count, tuple(marked))
