"""Mounts a layer over the folder of the host that a program works on: it sees the folder, and changes the layer.

The layer lies in the sized memory file system of the work folder and is mounted over it, so that no path leads to it
any more; neither does one to the folder of the host. The host gets a descriptor of the layer and reads from it what the
program changed. Called in a fork of a template that may still mount (``template.py``).

Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import os

from . import namespaces
from .namespaces import MS_NODEV, MS_NOSUID

#: The work folder, and where the template's root shows the folder of the host: as in ``jail/core/walls.py``.
WORK, HERE = "/box", "/here"
UPPER, SCRATCH = "/box/upper", "/box/work"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


def mount_layer() -> List[int]:
    """Mount the layer over the work folder and hide the folder of the host.

    Returns a descriptor of the layer, and one of the mount's settings where the kernel gives it: with that the host can
    have the kernel forget which names it has looked up. A program never gets either.
    """
    mode = os.stat(HERE).st_mode & 0o777
    os.mkdir(UPPER, 0o700)
    os.chmod(UPPER, mode | 0o700)
    os.mkdir(SCRATCH, 0o700)
    try:
        # A folder that is removed and made again is noted down in such an attribute. tmpfs has them since Linux 6.6.
        os.setxattr(UPPER, "user.canary", b"y")
        os.removexattr(UPPER, "user.canary")
    except OSError as error:
        raise OSError(error.errno, f"attributes of files in memory: {error.strerror}") from None
    layer = os.open(UPPER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    # userxattr: what overlayfs notes down is in attributes that it may set inside a user namespace.
    options = f"lowerdir={HERE},upperdir={UPPER},workdir={SCRATCH},userxattr"
    namespaces.mount("overlay", WORK, MS_NOSUID | MS_NODEV, options)
    namespaces.mount("tmpfs", HERE, MS_NOSUID | MS_NODEV, "mode=0555,size=4k")
    settings = namespaces.mount_settings(WORK)
    return [layer, settings] if settings >= 0 else [layer]
