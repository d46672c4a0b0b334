"""``get_ipython().kernel``: what libraries ask of a kernel. pandas takes a shell without one for a terminal.

The real kernel runs outside the sandbox. This object has only names, and what this session itself has.
"""

from __future__ import annotations

import importlib
import platform

from .between import belonging

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict


class ShellKernel:
    """The kernel, as far as libraries inside the session see it."""

    implementation = "ipython"
    language = "python"

    def __init__(self, shell: Any) -> None:
        self.shell = shell

    @property
    def language_info(self) -> Dict[str, Any]:
        """Name the language, as ipykernel does."""
        return {"name": "python", "version": platform.python_version(), "mimetype": "text/x-python"}

    @property
    def comm_manager(self) -> Any:
        """Return the manager of this session's comms, which lead to the widgets' frames."""
        return importlib.import_module("comm").get_comm_manager()

    def get_parent(self, channel: str | None = None) -> Dict[str, Any]:
        """Return a stand-in for the message that the front end sent for the running cell."""
        return belonging.parent()
