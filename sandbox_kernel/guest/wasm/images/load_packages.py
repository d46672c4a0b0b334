"""Imports packages into the image of a started CPython and writes its memory: the beginning of runs that have them.

The code of the packages runs here, in a jail, as it would in a program. Runs map the memory in place of the image's
own; nothing is compiled again.
"""

from __future__ import annotations

import json

import wasmtime

from ..endings import GuestEnding, GuestExit, describe_error, describe_trap
from ..plan import PackagesPlan
from ..python.light_python_session import LoadedImage, name_mounts
from .memory_file import write_memory


def load_packages(plan: PackagesPlan) -> GuestEnding:
    """Write the memory with the packages to ``plan.out``, and what could not be imported to ``plan.facts``."""
    known = {"module": plan.module, "handles": plan.handles, "switches": plan.switches}
    told: list[dict[str, object]] = []

    def letter(data: bytes) -> bytes:
        try:
            read = json.loads(data)
        except ValueError:
            return b"{}"
        if isinstance(read, dict) and read.get("op") == "next":
            return json.dumps({"call": "load", "arguments": [plan.path, list(plan.modules)]}).encode()
        if isinstance(read, dict):
            told.append(read)
        return b"{}"

    try:
        loaded = LoadedImage(known)
        places = loaded.give(plan.preopens)
        loaded.letter = letter
        record = loaded.read_record()
        name_mounts(loaded, record["spares"], places)
        if not loaded.function(record)(loaded.store, record["turn"], 0, 0, 0):
            return GuestEnding(end="invalid", message="the packages did not let Python go on after their import")
    except GuestExit as end:
        return GuestEnding(end="invalid", message=f"a package ended Python with {end.code} when it was imported")
    except wasmtime.Trap as trap:
        return GuestEnding(end="invalid", message=describe_trap(trap))
    except wasmtime.WasmtimeError as error:
        return GuestEnding(end="invalid", message=describe_error(error))
    if opened := loaded.wasi.open_files():
        return GuestEnding(end="invalid", message=f"a package left files open when it was imported: {opened[0]}")
    problem = write_memory(loaded, plan.out).get("problem")
    if problem is not None:
        return GuestEnding(end="invalid", message=f"the memory with the packages could not be written: {problem}")
    failed = told[-1].get("failed") if told else None
    with open(plan.facts, "w") as file:
        json.dump({"failed": [str(name)[:200] for name in failed] if isinstance(failed, list) else []}, file)
    return GuestEnding(end="compiled", memory_bytes=0)
