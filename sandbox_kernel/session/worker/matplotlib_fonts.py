"""Copies matplotlib's font list into a session, because making the list takes seconds.

The list is data that the user's own matplotlib wrote: names of fonts and paths of their files. A session's own list
is deleted with it, so without this copy each session would search all fonts at its first plot.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping

from sandbox_kernel.jail.gate_messages import JobFile

#: matplotlib's folder inside the jail, below the folder for temporary files.
FOLDER = ".matplotlib"
_MAX_BYTES = 4 << 20
_MAX_LISTS = 4


def cache_folders(environ: Mapping[str, str], home: str) -> list[str]:
    """Return the folders of the host in which matplotlib may keep its list, most likely first."""
    found = [environ["MPLCONFIGDIR"]] if environ.get("MPLCONFIGDIR") else []
    cache = environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache")
    return [*found, os.path.join(cache, "matplotlib")]


def font_lists(inside: str, folders: list[str] | None = None) -> tuple[JobFile, ...]:
    """Return this user's font lists as files for the folder ``inside``, newest first; empty when there are none."""
    places = folders if folders is not None else cache_folders(os.environ, os.path.expanduser("~"))
    paths = [path for folder in places for path in glob.glob(os.path.join(glob.escape(folder), "fontlist-v*.json"))]
    files = []
    for path in sorted(paths, key=_age)[:_MAX_LISTS]:
        try:
            if os.path.getsize(path) <= _MAX_BYTES:
                with open(path, "rb") as file:
                    files.append(JobFile(root=inside, name=os.path.basename(path), data=file.read()))
        except OSError:
            continue
    return tuple(files)


def _age(path: str) -> float:
    try:
        return -os.stat(path).st_mtime
    except OSError:
        return 0.0
