"""The program that runs WebAssembly inside a jail: it reads a plan, compiles or runs a module, reports one ending.

Standard library and wasmtime only. Read ``run.py`` first, then ``plan.py``.
"""
