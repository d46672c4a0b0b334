"""The folders of every sandbox that no grant may cover, for policies and for what users are advised to write."""

from __future__ import annotations

#: Folders of the sandbox: a mount over one of them would remove a wall or hide the work folder.
_OWN_PLACES = (
    "/",
    "/proc",
    "/dev",
    "/sys",
    "/box",
    "/tmp",
    "/usr",
    "/etc",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/run",
    "/cell",
    "/guest",
    "/here",
)
#: No mount may lie inside these either: kernel files, devices and our own programs.
_CLOSED_PLACES = ("/proc/", "/dev/", "/cell/", "/guest/", "/here/")


def is_own_place(target: str) -> bool:
    """Whether the path is a folder of the sandbox, where no grant may lie."""
    return target in _OWN_PLACES or target.startswith(_CLOSED_PLACES)
