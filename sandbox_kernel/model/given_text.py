"""Checks text that goes into a sandbox unchanged: environment variables, file names, arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import quoted

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
#: Environment variables that make a dynamic loader or libc load code or configuration.
LOADER_NAMES = re.compile(r"(LD_|DYLD_|GCONV_PATH\Z|GLIBC_TUNABLES\Z|LOCPATH\Z|NLSPATH\Z|MALLOC_)")


def check_env(env: Mapping[str, str], *, loader_names_allowed: bool = False) -> None:
    """Raise ``InvalidRequest`` for a variable that no program can receive, or whose name makes a loader load code.

    Args:
        env: The variables.
        loader_names_allowed: Whether names like ``LD_PRELOAD`` are accepted. Only a policy may set them.

    """
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


#: Deeper folders are refused, because the host does not read them after the run (``workspace/tree/walk.py``).
MAX_LEVELS = 256


def check_file_name(name: object, what: str = "file name") -> str:
    """Return the name if it is a relative path that stays inside the work folder, else raise ``InvalidRequest``."""
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
    """Raise ``InvalidRequest`` for text that no program can receive: with a NUL character, or without an encoding."""
    if "\0" in value:
        raise InvalidRequest(f"{what} holds a NUL character at position {value.index(chr(0))}; remove it")
    check_encodable(value, what)


def check_encodable(value: str, what: str) -> None:
    """Raise ``InvalidRequest`` for text that cannot be encoded as UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"{what} holds a lone surrogate at position {error.start}, which no encoding can carry; remove it"
        ) from None
