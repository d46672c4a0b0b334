"""The program that runs WebAssembly inside a jail: reads a plan, compiles or runs a module, reports how it ended.

Standard library and wasmtime only. Read ``run.py`` first, then ``plan.py``. ``binary.py`` and ``rewrite.py`` read and
change modules, ``wasi.py`` has the calls that we implement, ``memory.py`` the memory of sessions. The programs in
``inside/`` run inside the guest.
"""
