"""Programs that run INSIDE a jail. Host code never imports them, and they never import host code.

Inside, this folder is the package ``sandbox_guest``; its modules import each other relatively and otherwise only the
standard library (IPython and wasmtime where the module says so). Read ``gate/gate.py`` first.
"""
