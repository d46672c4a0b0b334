"""Engine objects that do not depend on the plan: built in advance in a waiting jail, used by one guest."""

from __future__ import annotations

from dataclasses import dataclass

import wasmtime

from .engine import PLAIN, Switches, make_engine
from .wasi.engine_overrides import make_linker


@dataclass(frozen=True)
class Parts:
    """An engine and its objects; ``known`` maps files to modules that were loaded in advance."""

    switches: Switches
    engine: wasmtime.Engine
    linker: wasmtime.Linker
    known: dict[str, wasmtime.Module]

    def module(self, path: str) -> wasmtime.Module:
        """Return a compiled module; loads it now if it was not loaded in advance."""
        return self.known.get(path) or wasmtime.Module.deserialize_file(self.engine, path)


def make_parts(switches: Switches = PLAIN, ahead: str | None = None) -> Parts:
    """Build the parts of one execution; ``ahead`` is the file of the module that it will most likely run."""
    engine = make_engine(switches)
    known = {ahead: wasmtime.Module.deserialize_file(engine, ahead)} if ahead is not None else {}
    return Parts(switches, engine, make_linker(engine), known)
