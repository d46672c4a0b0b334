"""The WebAssembly backend: the guest inside an engine, the engine inside a jail.

No byte of a user's module is compiled or run in the host's own process. Read ``wasm_backend.py`` first, then
``wasm_job.py``.
"""
