"""Wrapped kernels that work on the notebook's folder, copy-on-write (``sandbox-kernel wrap --here``).

The launcher and ``sandbox-kernel changes`` use it. Read ``kernel_folder.py`` first, then ``asking.py``.
"""
