"""What a run left in its work folder, told by looking once, after its end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from sandbox_kernel.model import ExecResult


def changes_since(result: ExecResult, box_fd: int, files: Mapping[str, bytes | str]) -> ExecResult:
    """The result with its changes filled in; the folder held just ``files`` at the start."""
    if not files and not os.listdir(box_fd):
        return result
    return replace(result, changes=())
