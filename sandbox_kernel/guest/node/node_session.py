"""Starts the worker of a Node.js session: this process becomes Node.js and keeps the channel.

Arguments: the folder of the cell's source, then the command that starts ``node_session.js``. This module adds four
arguments: the channel's descriptor, the gate's pid, and the ``oom_score_adj`` of checkpoints and of the worker.
"""

from __future__ import annotations

import os

from ..session.freeze import read_score

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


def main(channel: int, arguments: List[str]) -> None:
    """Become the worker of a session; returns only by raising an error."""
    os.set_inheritable(channel, True)
    if "HOST_CALL_SOCKET" in os.environ:
        os.set_inheritable(int(os.environ["HOST_CALL_SOCKET"]), True)
    gate = os.getppid()
    facts = [channel, gate, read_score(str(gate)), read_score("self")]
    os.execve(arguments[1], [*arguments[1:], *map(str, facts)], dict(os.environ))
