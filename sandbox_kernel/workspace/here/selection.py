"""Chooses which changes are applied, and says which are applied only when the user names them."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import quoted
from sandbox_kernel.workspace.here.change_log import Kept
from sandbox_kernel.workspace.here.hidden import is_hidden
from sandbox_kernel.workspace.tree.paths import plain_path

#: What apply writes into the user's folder while it works. A program's own files of such names are never applied.
STAGE_PREFIX = ".sandbox-kernel-apply-"
#: A tool of the host would obey or run what lies in these.
OBEYED = frozenset(
    (
        *(".git", ".hg", ".svn", ".envrc", ".vscode", ".idea", ".jupyter", ".ipython", ".github", ".husky", ".claude"),
        *(".cursor", "pyvenv.cfg", "sitecustomize.py", "usercustomize.py"),
    )
)


@dataclass(frozen=True)
class Chosen:
    """The changes to apply by path, and those that were left out because they were not named."""

    entries: dict[str, Kept]
    left_out: tuple[str, ...] = ()


def select(entries: Mapping[str, Kept], paths: Iterable[str | os.PathLike[str]] | None) -> Chosen:
    """Choose changes: those at and below the paths (patterns too), or all that need not be named.

    Raises ``InvalidRequest`` for a path at which nothing changed. Folders above a chosen file come along.
    """
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    if paths is None:
        chosen = {path: kept for path, kept in entries.items() if not needs_naming(path, kept)}
        return Chosen(chosen, tuple(sorted(set(entries) - set(chosen))))
    chosen = {}
    for asked in paths:
        wanted = plain_path(asked)
        found = {path: kept for path, kept in entries.items() if _is_meant(path, wanted)}
        if not found:
            near = ", ".join(sorted(entries)[:5]) or "nothing"
            raise InvalidRequest(f"nothing changed at {quoted(wanted)}; changed: {near}")
        chosen |= found
    for path in list(chosen):
        while "/" in path:
            path = path.rpartition("/")[0]
            if path in entries and not entries[path].is_gone:
                chosen[path] = entries[path]
    refused = [path for path in chosen if _never(path)]
    if refused:
        raise InvalidRequest(f"{quoted(refused[0])} has a name that apply uses itself and is never applied; rename it")
    return Chosen(chosen)


def needs_naming(path: str, kept: Kept) -> bool:
    """Whether a change is applied only when it is named: a tool of the host would obey it, or it leaves the folder."""
    return (
        _never(path)
        or not OBEYED.isdisjoint(path.split("/"))
        or path.endswith(".pth")
        or is_hidden(path)
        or _leaves(path, kept)
    )


def _never(path: str) -> bool:
    return any(part.startswith(STAGE_PREFIX) for part in path.split("/"))


def _leaves(path: str, kept: Kept) -> bool:
    """Whether a link leads out of the folder."""
    if kept.target is None:
        return False
    return kept.target.startswith("/") or os.path.normpath(f"{path}/../{kept.target}").startswith("..")


def _is_meant(path: str, wanted: str) -> bool:
    return path == wanted or path.startswith(f"{wanted}/") or wanted == "." or fnmatch.fnmatchcase(path, wanted)
