"""What an execution needs of the engine and nobody's plan decides: made while its jail waits, used by one guest."""

from __future__ import annotations

from dataclasses import dataclass

import wasmtime

from .engine import PLAIN, Switches, make_engine
from .wasi.engine_overrides import make_linker


@dataclass(frozen=True)
class Parts:
    """An engine and what belongs to it; ``known`` are modules that were loaded ahead, by their files."""

    switches: Switches
    engine: wasmtime.Engine
    linker: wasmtime.Linker
    known: dict[str, wasmtime.Module]

    def module(self, path: str) -> wasmtime.Module:
        """A compiled module, loaded now unless it was ahead."""
        return self.known.get(path) or wasmtime.Module.deserialize_file(self.engine, path)


def make_parts(switches: Switches = PLAIN, ahead: str | None = None) -> Parts:
    """The parts of one execution, with the module that it will most likely run."""
    engine = make_engine(switches)
    known = {ahead: wasmtime.Module.deserialize_file(engine, ahead)} if ahead is not None else {}
    return Parts(switches, engine, make_linker(engine), known)
