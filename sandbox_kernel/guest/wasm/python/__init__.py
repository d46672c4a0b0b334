"""CPython inside WebAssembly: sessions, single programs and SQL.

``wasm_python_session.py`` runs outside the guest, the other files are copied into it.
"""
