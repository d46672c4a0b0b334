"""Programs that run inside a guest: in CPython or QuickJS inside WebAssembly. No module imports them.

``javascript_boot.js`` is in every image of QuickJS, ``typescript_*`` and ``bash_*`` in those of their languages.
"""
