"""The WebAssembly backend: the guest inside an engine, the engine inside a jail. Read ``wasm_backend.py`` first."""
