"""The variables of the host that select programs and folders: what a run depends on, beyond its request."""

from __future__ import annotations

import os

#: Variables, and prefixes of variables.
VARIABLES = ("PATH", "HOME", "TMPDIR", "TEMP", "TMP", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
VARIABLES_LIKE = ("SANDBOX_KERNEL_", "LD_", "PYTHON")


def selecting_variables() -> dict[str, str]:
    """Return them, as they are now."""
    return {name: value for name, value in os.environ.items() if name in VARIABLES or name.startswith(VARIABLES_LIKE)}
