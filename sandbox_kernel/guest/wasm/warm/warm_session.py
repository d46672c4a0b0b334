"""The process that becomes the worker of a WebAssembly session: it waits in its jail with the guest loaded.

The gate starts it when the jail is made (``wait``), so that opening or forking a session does not wait for the engine
and the module. Checkpoints are forks of this process, so nothing here may start a thread.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

import wasmtime

from ...session.worker import Worker
from .warm_order import receive_order

TYPE_CHECKING = False


#: The descriptor of a waiting program's channel to the host.
_CHANNEL = 3


def wait(order: int, arguments: list[str]) -> None:
    """Load the guest, wait for the plan of a session, and serve the session; never returns.

    The arguments are the name of the engine's module, which has ``load`` and ``make``, and the argument of ``load``.
    """
    name, known = arguments
    engine = importlib.import_module(name)
    try:
        loaded = engine.load(json.loads(known))
        given = receive_order(order)
        nothing = os.open("/dev/null", os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.chdir(given.cwd)
        os.environ.clear()
        os.environ.update(given.env)
        plan = json.loads(given.argv[0])
        made = engine.make(loaded, plan, given.descriptors[0] if given.descriptors else None)
        if given.line is not None:
            made.offer(given.line)
    except wasmtime.WasmtimeError as error:
        print(error, file=sys.stderr)
        os._exit(125)
    Worker(_CHANNEL, made).serve()
