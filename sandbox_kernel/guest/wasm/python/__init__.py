"""CPython inside WebAssembly: sessions, single programs and SQL.

``python_session.py``, ``boot_python.py``, ``interrupts.py`` and ``pip_in_jail.py`` run outside the guest; the other
files are copied into it.
"""
