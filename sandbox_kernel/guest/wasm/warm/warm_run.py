"""The embedder as a waiting program: forked when its jail is made, warmed up, and given its plan later.

The first run of an engine in a new process costs some milliseconds of page faults, threads and lazy imports. Here a
module that does nothing is run in advance, so that the user's run does not wait for them. Only our own code runs before
the order comes.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace

import wasmtime

from ..engine import PLAIN, make_engine
from ..guest_fetch import WHERE
from ..javascript import embedder, quickjs
from ..parts import make_parts
from ..plan import RunPlan, read_plan, read_switches
from ..run import carry_out, run_guest
from .warm_order import receive_order

_AHEAD = (embedder, quickjs)
_NOTHING = """(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (drop (call $write (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 8)))))"""
#: Compiled once, in the process that imports this module and forks the embedders.
_COMPILED = wasmtime.Module(make_engine(PLAIN), _NOTHING).serialize()


def wait(order: int, arguments: list[str]) -> None:
    """Warm up, wait for the order on this descriptor, and carry it out; never returns.

    The arguments are the file of the compiled module that will most likely be needed, and the settings of its engine,
    if that is known.
    """
    warm_up()
    ahead = make_parts(read_switches(json.loads(arguments[1])), arguments[0]) if len(arguments) == 2 else make_parts()
    given = receive_order(order)
    os.chdir(given.cwd)
    if WHERE in given.env:
        os.environ[WHERE] = given.env[WHERE]
    text, status = given.argv
    document = json.loads(text)
    if given.descriptors:
        document["module"] = f"/proc/self/fd/{given.descriptors[0]}"
    plan = read_plan(document)
    if given.line is not None and isinstance(plan, RunPlan):
        plan = replace(plan, line=given.line)
    os._exit(carry_out(plan, status, ahead))


def warm_up() -> None:
    """Run a guest that does nothing, through the same code as every guest."""
    with os.fdopen(os.memfd_create("nothing"), "wb") as file:
        file.write(_COMPILED)
        file.flush()
        run_guest(RunPlan(module=f"/proc/self/fd/{file.fileno()}"))
