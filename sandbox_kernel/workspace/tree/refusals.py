"""Turns an OSError into a typed error that says what to do."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox_kernel.errors import ExecutionFailed, InvalidRequest, PathTraversal, SandboxError
from sandbox_kernel.workspace.tree.paths import Names, display_name


def shown(path: str | Names) -> str:
    """Return a path in quotes, safe for a message."""
    text = path if isinstance(path, str) else "/".join(map(str, path))
    return f"'{display_name(text)}'"


@contextmanager
def explained(action: str, path: str | Names) -> Iterator[None]:
    """Turn every OSError of the block into a typed error that names the action and the path."""
    try:
        yield
    except OSError as error:
        raise _refusal(action, path, error) from error


def _refusal(action: str, path: str | Names, error: OSError) -> SandboxError:
    name = shown(path)
    match error.errno:
        case errno.ELOOP:
            return PathTraversal(
                f"path traversal blocked: cannot {action} {name}: a link stands in the way, and links made in the "
                "sandbox are not followed; give the path of the file itself"
            )
        case errno.EXDEV:
            return PathTraversal(f"path traversal blocked: cannot {action} {name}: it leads out of the work folder")
        case errno.ENOENT:
            return InvalidRequest(f"cannot {action} {name}: not found in the work folder; list_dir('.') shows what is")
        case errno.ENOTDIR | errno.EISDIR | errno.EEXIST | errno.ENOTEMPTY | errno.EINVAL | errno.ENAMETOOLONG:
            return InvalidRequest(f"cannot {action} {name}: {error.strerror}")
        case errno.ENOSPC | errno.EDQUOT:
            return ExecutionFailed(f"cannot {action} {name}: the work folder is full; remove files or raise disk_mb")
    return ExecutionFailed(f"cannot {action} {name}: {error.strerror}")
