"""Gives a Python guest the sources of modules of ours that it imports when it needs them: ``%pip`` and what that uses.

A guest asks by name (``cell_boot.py``). ``packaging``, which reads versions and requirements, and ``resolvelib``, which
chooses versions, are the packages of this environment; in the guest they have other names, so that a program can
install versions of its own.
"""

from __future__ import annotations

import importlib.util
import os
import re

#: The packages that a guest can ask for, by their names there.
_OURS, _OTHERS = "_sandbox_pip", {"_sandbox_packaging": "packaging", "_sandbox_resolvelib": "resolvelib"}
_NAME = re.compile(r"(_sandbox_\w+)((?:\.\w+)*)\Z")


def source_of(name: str) -> dict[str, object]:
    """Return the source of a module for a guest, and whether it is a package; nothing for any other name."""
    parts = _NAME.match(name)
    folder = _folder(parts[1]) if parts is not None else None
    if parts is None or folder is None:
        return {}
    place = os.path.join(folder, *parts[2].split(".")[1:])
    is_package = os.path.isdir(place)
    try:
        with open(os.path.join(place, "__init__.py") if is_package else f"{place}.py", encoding="utf-8") as file:
            source = file.read()
    except OSError:
        return {}
    for there, here in _OTHERS.items():
        source = re.sub(rf"^from {here}\b", f"from {there}", source, flags=re.MULTILINE)
    return {"source": source, "package": is_package}


def _folder(package: str) -> str | None:
    if package == _OURS:
        return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "pip")
    found = importlib.util.find_spec(_OTHERS[package]) if package in _OTHERS else None
    return os.path.dirname(found.origin) if found is not None and found.origin else None
