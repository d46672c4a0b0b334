"""Text that goes into a sandbox as it was given: variables, names of files. What cannot be handed over is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import quoted

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
#: Names by which a dynamic loader or libc takes code or configuration from the environment.
LOADER_NAMES = re.compile(r"(LD_|DYLD_|GCONV_PATH\Z|GLIBC_TUNABLES\Z|LOCPATH\Z|NLSPATH\Z|MALLOC_)")


def check_env(env: Mapping[str, str], *, loader_names_allowed: bool = False) -> None:
    """Refuse names and values that no program can receive, and names by which a loader takes code."""
    for name, value in env.items():
        if not isinstance(name, str) or not _ENV_NAME.match(name):
            raise InvalidRequest(
                f"environment name {quoted(name)} is not usable; use letters, digits and _, not starting with a digit"
            )
        if not isinstance(value, str):
            raise InvalidRequest(f"environment value of {name} must be a string, got {quoted(value)}")
        check_text(value, f"environment value of {name}")
        if LOADER_NAMES.match(name) and not loader_names_allowed:
            raise InvalidRequest(
                f"environment name {name} tells the loader to run other code; "
                f"if that is meant, allow it in the policy: policy.with_env({name!r}, …)"
            )


#: A folder that is nested deeper is not looked into afterwards (``workspace/tree/walk.py``).
MAX_LEVELS = 256


def check_file_name(name: object, what: str = "file name") -> str:
    """Return a relative path that stays beneath its root, or say what is wrong with it."""
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"{what} must be a non-empty relative path, got {quoted(name)}")
    check_text(name, what)
    parts = name.split("/")
    if name.startswith("/") or "\\" in name or re.match(r"[A-Za-z]:", name):
        raise InvalidRequest(f"{what} {name!r} must be relative to the work folder, with / between folders")
    if any(part in ("", ".", "..") for part in parts):
        raise InvalidRequest(f"{what} {name!r} leaves or re-enters the work folder; give a plain path like data/a.csv")
    if any(len(part.encode()) > 255 for part in parts) or len(name.encode()) > 4000:
        raise InvalidRequest(f"{what} {name[:60]!r}… is longer than a file system takes")
    if len(parts) > MAX_LEVELS:
        raise InvalidRequest(
            f"{what} {name[:60]!r}… has {len(parts)} levels of folders; at most {MAX_LEVELS} are taken"
        )
    return name


def check_text(value: str, what: str) -> None:
    """Refuse what no program can be given as a name, a value or an argument."""
    if "\0" in value:
        raise InvalidRequest(f"{what} holds a NUL character at position {value.index(chr(0))}; remove it")
    check_encodable(value, what)


def check_encodable(value: str, what: str) -> None:
    """Refuse text that has no bytes."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"{what} holds a lone surrogate at position {error.start}, which no encoding can carry; remove it"
        ) from None
