"""The part of a session that runs inside the jail and is the same for every language.

The *worker* runs the cells (``worker.py``). After each cell it forks a *checkpoint*: a copy of itself that sleeps until
it is needed (``freeze.py``). The *gate* (``checkpoint_gate.py``) is the parent of the worker and outlives it.

A rollback goes like this: the host orders the gate to hand over to a checkpoint; the gate kills the worker and
everything that the cell started; the host restores the work folder (``workspace/folder_copies.py``); then the gate
wakes the checkpoint, which becomes the worker.

Used by the workers of ``python/``, ``scripts/`` and ``wasm/``. The host's side is ``session/worker/``.
"""
