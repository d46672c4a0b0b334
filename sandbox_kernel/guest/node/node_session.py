"""How a Node.js session begins inside its jail: this process becomes Node.js, with the channel as its own.

Arguments: the folder of the cell's source, then the command that starts ``node_session.js``. What the program there
needs to know of this process comes in the environment of its first message, which is its argument: the channel, the
gate, and how gladly the kernel should end it or its checkpoints when memory runs out.
"""

from __future__ import annotations

import os

from ..session.freeze import read_score

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List


def main(channel: int, arguments: List[str]) -> None:
    """Become the worker of a session; returns only by an error."""
    os.set_inheritable(channel, True)
    gate = os.getppid()
    told = [channel, gate, read_score(str(gate)), read_score("self")]
    os.execve(arguments[1], [*arguments[1:], *map(str, told)], dict(os.environ))
