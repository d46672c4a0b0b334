"""Chooses which changes are applied, and says which are applied only when the user names them (``obeyed.py``)."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import quoted
from sandbox_kernel.workspace.here.applying.obeyed import Obeyed, is_ordinary
from sandbox_kernel.workspace.here.change_log import Kept
from sandbox_kernel.workspace.here.project_folder import ProjectFolder
from sandbox_kernel.workspace.tree.paths import names_beneath, plain_path
from sandbox_kernel.workspace.tree.walk import DIRECTORY

#: What apply writes into the user's folder while it works. A program's own files of such names are never applied.
STAGE_PREFIX = ".sandbox-kernel-apply-"
#: Links that are followed to find out where a link leads; the kernel follows as many.
_MOST_LINKS = 40


@dataclass(frozen=True)
class Chosen:
    """The changes to apply by path, and those that were left out because they were not named."""

    entries: dict[str, Kept]
    left_out: tuple[str, ...] = ()


def select(entries: Mapping[str, Kept], paths: Iterable[str | os.PathLike[str]] | None) -> dict[str, Kept]:
    """Choose changes to look at or to drop: those at and below the paths, or of a pattern; all without paths.

    Raises ``InvalidRequest`` for a path at which nothing changed.
    """
    if paths is None:
        return dict(entries)
    chosen: dict[str, Kept] = {}
    for asked in _listed(paths):
        chosen |= _found(entries, asked)[0]
    return chosen


def select_to_apply(
    entries: Mapping[str, Kept],
    paths: Iterable[str | os.PathLike[str]] | None,
    project: ProjectFolder,
    *,
    by_user: bool = True,
) -> Chosen:
    """Choose changes to apply; new folders above a chosen file come along.

    What needs naming is chosen only by its own name, never by a pattern or with the folder that it lies in, and only
    ``by_user``: an agent that names it is not the user. Raises ``InvalidRequest`` for a path at which nothing changed,
    or nothing that can be applied so.
    """
    chosen: dict[str, Kept] = {}
    obeyed = Obeyed(entries, project)
    for asked in _listed(["."] if paths is None else paths):
        found, named = _found(entries, asked) if paths is not None else (dict(entries), "")
        told = named if by_user else ""
        usable = {path: kept for path, kept in found.items() if not _needs_more(path, entries, obeyed, told)}
        refused = [path for path in found if _never(path)]
        if refused and named:
            raise InvalidRequest(
                f"{quoted(refused[0])} has a name that apply uses itself and is never applied; rename it"
            )
        if not usable and found and not by_user:
            raise InvalidRequest(
                f"{quoted(min(found))} is obeyed by tools of the user, leads out of the folder, or may hold secrets: "
                "only the user can apply it, for example with the patch; leave it out"
            )
        if not usable and paths is not None and found:
            raise InvalidRequest(f"{quoted(asked)} is applied only by its own name: {quoted(min(found))}")
        chosen |= usable
    for path in list(chosen):
        for above in _above(path):
            kept = entries.get(above)
            if kept is None or kept.type != DIRECTORY or (kept.base is not None and kept.base.is_folder):
                continue
            if kept.base is None or not _needs_more(above, entries, obeyed, ""):
                chosen[above] = kept
    _leave_out_what_hangs_together(chosen, entries, project)
    if paths is not None and not chosen:
        raise InvalidRequest(
            "these changes cannot be applied alone: a folder among them holds files that are hidden from programs, or "
            "lies below a change that is not applied; apply that one by its own name"
        )
    return Chosen(chosen, tuple(sorted(set(entries) - set(chosen))))


def _listed(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    return [plain_path(path) for path in ([paths] if isinstance(paths, str | os.PathLike) else paths)]


def _found(entries: Mapping[str, Kept], asked: str) -> tuple[dict[str, Kept], str]:
    """Return the changes at and below a path and the path itself; or those of a pattern, and an empty path.

    A changed file of exactly this name wins over a pattern: a program may call a file ``*``.
    """
    wanted = asked if isinstance(asked, str) and asked in entries else "/".join(names_beneath(asked, folder=True))
    if not wanted:
        return dict(entries), ""
    found = {path: kept for path, kept in entries.items() if path == wanted or path.startswith(f"{wanted}/")}
    if found:
        return found, wanted
    found = {path: kept for path, kept in entries.items() if fnmatch.fnmatchcase(path, wanted)}
    if not found:
        near = ", ".join(sorted(entries)[:5]) or "nothing"
        raise InvalidRequest(f"nothing changed at {quoted(wanted)}; changed: {near}")
    return found, ""


def _needs_more(path: str, entries: Mapping[str, Kept], obeyed: Obeyed, named: str) -> bool:
    """Whether a change needs naming and was not named: neither itself nor the folder that needs it."""
    if _never(path):
        return True
    if obeyed.by_place(path):
        return not obeyed.by_place(named)
    return path != named and (obeyed.by_change(path, entries[path]) or _leads_away(path, entries, obeyed))


def _leave_out_what_hangs_together(
    chosen: dict[str, Kept], entries: Mapping[str, Kept], project: ProjectFolder
) -> None:
    """Take out what cannot be applied without something that is left out.

    Below a link or file that takes the place of a folder and is left out, nothing is removed; below a folder that takes
    the place of a file or link and is left out, nothing is written. A folder of the user that shall go stays while
    something in it stays: a change that is left out, or a file that is hidden from programs.
    """
    in_place = {path for path in set(entries) - set(chosen) if not entries[path].is_gone}
    replacing = {path for path in in_place if (base := entries[path].base) is not None and not base.is_folder}
    _drop_below(chosen, replacing | {path for path in in_place if entries[path].type != DIRECTORY})
    stays = {above for path in (*project.hidden_files.find(), *entries) if path not in chosen for above in _above(path)}
    for path in sorted(chosen, key=lambda path: -path.count("/")):
        base = chosen[path].base if path in chosen else None
        if path in stays and base is not None and base.is_folder and chosen[path].type != DIRECTORY:
            kept = chosen.pop(path)
            stays.update(_above(path))
            if not kept.is_gone:
                _drop_below(chosen, {path})


def _drop_below(chosen: dict[str, Kept], roots: set[str]) -> None:
    for path in [path for path in chosen if not roots.isdisjoint(_above(path))] if roots else ():
        del chosen[path]


def _above(path: str) -> Iterator[str]:
    """Yield the folders above a path."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _never(path: str) -> bool:
    return any(part.startswith(STAGE_PREFIX) for part in path.split("/"))


def _leads_away(path: str, entries: Mapping[str, Kept], obeyed: Obeyed) -> bool:
    """Whether a link leads out of the folder, or to what needs naming; through links that are there or will be.

    A link that leads to no folder is a file of its own name.
    """
    target = entries[path].target
    if target is None:
        return False
    at = path.split("/")[:-1]
    left = list(reversed(target.split("/")))
    followed = 0
    if target.startswith("/"):
        return True
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            if not at:
                return True
            at.pop()
            continue
        at.append(name)
        inner = "/".join(at)
        known = entries.get(inner)
        link = known.target if known is not None else obeyed.project.read_link(inner)
        if link is not None:
            followed += 1
            if link.startswith("/") or followed > _MOST_LINKS:
                return True
            at.pop()
            left += reversed(link.split("/"))
    end = "/".join(at)
    return obeyed.by_place(end) or not (obeyed.is_folder(end) or is_ordinary(path))
