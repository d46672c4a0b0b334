"""What every session worker needs, whatever its language: channel, checkpoints by fork, copies of the work folder.

Called by the workers of ``python/``, ``scripts/`` and ``wasm/``. Read ``worker.py`` first, then ``checkpoint_gate.py``,
which outlives the worker and performs the rollback.
"""
