"""Words and paths of policies, checked. Used by the policy itself and by its documents."""

from __future__ import annotations

import os
from enum import StrEnum

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.limits import quoted
from sandbox_kernel.model.request import is_own_place

#: The root of a program; only WebAssembly, whose programs see folders by name, can be given another one.
ROOT = "/"


class AccessMode(StrEnum):
    """How an allowed path may be used."""

    READ_ONLY = "readOnly"
    READ_WRITE = "readWrite"


def flag(value: object, what: str) -> bool:
    """A switch of a policy: a word like 'no' is true in Python, so only true and false are taken."""
    if not isinstance(value, bool):
        raise PolicyViolation(f"{what} must be true or false, got {quoted(value)}")
    return value


def mount_target(guest: object) -> str:
    """Return the normalised path of a mount inside. Raises ``PolicyViolation`` when nothing can be mounted there."""
    text = os.fspath(guest) if isinstance(guest, os.PathLike) else guest
    if not isinstance(text, str) or not text.startswith("/") or ".." in text.split("/") or "\0" in text:
        raise PolicyViolation(f"mount target {quoted(guest)} must be an absolute path without '..', for example /data")
    target = normal(path_text(text))
    if target != ROOT and is_own_place(target):
        raise PolicyViolation(f"mount target {text!r} is a place of the sandbox itself; choose another, like /data")
    return target


def normal(path: str) -> str:
    """Normalise a path. Two leading slashes become one, which ``normpath`` does not do."""
    return "/" + os.path.normpath(path).lstrip("/")


def path_text(path: str | os.PathLike[str]) -> str:
    """Return a path as text, unchanged. Raises ``PolicyViolation`` when it is not a path."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text or "\0" in text:
        raise PolicyViolation(f"{quoted(path)} is not a path; give the name of a file or folder")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PolicyViolation(f"path {text!r} is not valid UTF-8; rename it or mount its parent") from None
    return text


def current_folder(asked: str) -> str:
    """Return the current folder. Raises ``PolicyViolation`` that names ``asked`` when it was deleted."""
    try:
        return os.getcwd()
    except OSError as error:
        raise PolicyViolation(
            f"policy needs the current folder for {asked!r}, which was deleted ({error.strerror}); "
            "go to a folder that exists"
        ) from None
