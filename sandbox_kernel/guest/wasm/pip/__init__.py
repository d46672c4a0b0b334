"""``%pip`` inside Python in WebAssembly: finds wheels of pure Python and what they need, checks and unpacks them.

Runs inside the guest as the package ``_sandbox_pip``; the worker gives it the sources
(``wasm_python_session.py``). Begin with ``install.py``.
"""
