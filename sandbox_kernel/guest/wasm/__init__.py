"""The program that runs WebAssembly inside a jail: reads a plan, compiles or runs a module, reports how it ended.

Standard library and wasmtime only. Read ``run.py`` first, then ``plan.py``.
"""
