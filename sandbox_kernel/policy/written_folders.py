"""Folders that programs may write to. They are remembered: what lies there may be a program's, long after it ended.

A mark is a link to such a folder, in a folder of the user's state. It is found again by the folder's inode and its path
or, when the user moved it, the time of its birth, which tells it from a later folder with the same inode. Where a file
system keeps no such time, the device stands for it. A copy (``cp -a``) is another folder and has no mark.

Nothing that lies in such a folder is run on the host or obeyed as a policy, and no link in it is followed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import warnings
from collections.abc import Collection, Iterator

from sandbox_kernel.errors import BackendUnavailable, PolicyViolation
from sandbox_kernel.limits import quoted
from sandbox_kernel.util.own_folder import NotPrivate, cache_root, make_own_folder, state_root, walked

#: Beyond this number, folders that are gone are forgotten.
_MOST_REMEMBERED = 4096
_AT_FDCWD, _STATX_BTIME, _BTIME = -100, 0x800, slice(80, 92)
#: Marks that cannot be written, and their folders.
_remembered: dict[str, str] = {}


def real_path(path: str, writable: Collection[tuple[int, int]] = ()) -> str:
    """Return the real path of an absolute path. Raises ``OSError`` if it does not exist.

    Raises ``PolicyViolation`` for a link that a program may have made: one in a folder that was given writable before,
    or in one of ``writable`` (devices and inodes).
    """
    real = "/"
    for passed, found, folder, _ in _on_the_way(path, writable):
        if not stat.S_ISLNK(found.st_mode):
            real = passed
        elif folder:
            raise PolicyViolation(
                f"{path!r} leads through the link {passed!r}. It lies in {folder!r}, which programs may write to, "
                f"so one of them may have made it; name what it leads to, or put the folder itself there"
            )
    return real


def host_file(path: str | os.PathLike[str]) -> str:
    """Return the path of a file that the user named for writing, with the real path of its folder.

    Raises ``OSError`` if the folder does not exist, and ``PolicyViolation`` for a link on the way that a program may
    have made. Open the file with ``O_NOFOLLOW``, or replace it.
    """
    folder, name = os.path.split(absolute(path))
    return os.path.join(real_path(folder), name)


def open_host_file(path: str | os.PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Open a regular file that the user named, by ``host_file``. Raises ``OSError`` for a link, a FIFO and the like."""
    fd = os.open(host_file(path), flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return fd


def written_place(path: str, writable: Collection[tuple[int, int]] = (), *, own: str = "") -> str:
    """Return where a program may have made a file, or a folder or link on the way to it, as words; empty for nowhere.

    ``writable`` are devices and inodes of folders that programs may write to, besides those that are remembered. What
    lies in ``own``, a real folder, and on the way to it, is trusted. Raises ``OSError`` if there is no such file.
    """
    for passed, _, folder, forget in _on_the_way(absolute(path), writable):
        kept = own and (f"{passed}/".startswith(f"{own}/") or f"{own}/".startswith(f"{passed}/"))
        if folder and not kept:
            return f"{passed!r} lies in {folder!r}, which programs may write to{forget}"
    return ""


def host_program(path: str) -> str:
    """Return the path of a program that is about to be run on the host, outside of every sandbox.

    Raises ``BackendUnavailable`` when a program inside may have made it. The environment of this process is exempt: it
    is shown read-only where it lies in a writable folder.
    """
    try:
        place = written_place(path, own=os.path.realpath(sys.prefix))
    except OSError as error:
        raise BackendUnavailable(f"{path!r} cannot be run: {error.strerror}") from None
    if place:
        raise BackendUnavailable(f"{path!r} is not run on the host, because programs may have made it: {place}")
    return path


def own_places(writable: Collection[str]) -> list[str]:
    """Return what the host itself runs and trusts inside of these real folders, which programs may write to.

    It is this process's environment and package, and our state and caches, which are made if they are missing: walls
    keep them from programs. Raises ``PolicyViolation`` for a link on the way to them that programs could exchange.
    """
    if not writable:
        return []
    trees = [sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(__file__))]
    roots = [*map(os.path.dirname, _places()), os.path.join(cache_root(), "sandbox-kernel")]
    if chosen := os.environ.get("SANDBOX_KERNEL_CACHE"):
        roots.append(os.path.abspath(os.path.expanduser(chosen)))
    real = {os.path.realpath(place) for place in (*trees, *roots)}
    for path in (*trees, *roots, sys.executable):
        with contextlib.suppress(OSError):
            for passed, found in walked(path):
                if stat.S_ISLNK(found.st_mode) and _inside(passed, writable) and not _inside(passed, real):
                    raise PolicyViolation(
                        f"{path!r} is reached by the link {passed!r}, in a folder that this policy lets programs write "
                        f"to: they could exchange it; use {os.path.realpath(path)!r}, or give the folder read-only"
                    )
    for root in (os.path.realpath(root) for root in roots):
        if any(root == folder or _inside(folder, [root]) for folder in writable):
            raise PolicyViolation(f"{root!r} holds what sandboxes remember and cannot be given writable")
        if _inside(root, writable):
            with contextlib.suppress(OSError):
                os.makedirs(root, 0o700, exist_ok=True)
    return [place for place in real if _inside(place, writable) and os.path.exists(place)]


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


def absolute(path: str | os.PathLike[str]) -> str:
    """Return an absolute path. The current folder, which may be gone, is asked for only where it is needed."""
    return os.fspath(path) if os.path.isabs(path) else os.path.join(os.getcwd(), path)


def _inside(path: str, folders: Collection[str]) -> bool:
    return any(path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def remember(folder: str, info: os.stat_result) -> None:
    """Remember a file or folder that programs may write to, for this user."""
    kept = False
    for place in _places():
        mark = os.path.join(place, _name(folder, info))
        try:
            with contextlib.suppress(NotPrivate):  # a mark that others could remove is more than none
                make_own_folder(place)
            if not os.path.lexists(mark):
                os.symlink(folder, mark)
                marks = [each.path for each in os.scandir(place)]
                for old in marks if len(marks) > _MOST_REMEMBERED else ():
                    if not os.path.exists(old):
                        os.unlink(old)
            kept = True
        except OSError:
            _remembered[mark] = folder
    if not kept:
        warnings.warn(
            f"it cannot be remembered that programs may write to {folder!r}: {state_root()!r} cannot be written. Later "
            "processes will trust links and files in it; set XDG_STATE_HOME to a private folder",
            stacklevel=2,
        )


def _on_the_way(path: str, writable: Collection[tuple[int, int]]) -> Iterator[tuple[str, os.stat_result, str, str]]:
    """Yield each folder and link on the way to a path, the folder around it that programs may write to, and a remedy.

    The folder is empty when there is none. A file that programs may write to counts as its own folder.
    """
    known: dict[str, list[str]] = {}
    for place in (None, *_places()):
        with contextlib.suppress(OSError):
            for mark in _remembered if place is None else [os.path.join(place, name) for name in os.listdir(place)]:
                known.setdefault(os.path.basename(mark).partition(".")[0], []).append(mark)
    written: dict[str, str] = {}
    for passed, found in walked(path):
        folder = next((each for each in written if passed.startswith(f"{each.rstrip('/')}/")), "")
        marks = [mark for mark in known.get(str(found.st_ino), ()) if _is_of(mark, passed, found)]
        if marks or (found.st_dev, found.st_ino) in writable:
            written[passed] = "; keep it elsewhere" + (
                f", or trust what is there now: rm {' '.join(marks)}" if marks else ""
            )
            folder = folder or ("" if stat.S_ISDIR(found.st_mode) else passed)
        yield passed, found, folder, written.get(folder, "")


def _places() -> list[str]:
    """Return the folders of marks: in the state folder of now and in the usual one, which later processes may use."""
    roots = (state_root(), os.path.join(os.path.expanduser("~"), ".local", "state"))
    return [os.path.join(root, "sandbox-kernel", "writable") for root in dict.fromkeys(roots)]


def _is_of(mark: str, folder: str, info: os.stat_result) -> bool:
    with contextlib.suppress(OSError):
        if (_remembered.get(mark) or os.readlink(mark)) == folder:
            return True
    return os.path.basename(mark) == _name(folder, info)


def _name(folder: str, info: os.stat_result) -> str:
    """Return the name of a folder's mark: its inode and the time of its birth, or its device."""
    import ctypes  # most sandboxes have no writable grant

    about, libc = ctypes.create_string_buffer(256), ctypes.CDLL(None)
    failed = libc.statx(_AT_FDCWD, os.fsencode(folder), 0, _STATX_BTIME, about) if hasattr(libc, "statx") else -1
    born = about.raw[_BTIME]
    return f"{info.st_ino}.{born.hex() if not failed and any(born) else f'on-{info.st_dev}'}"
