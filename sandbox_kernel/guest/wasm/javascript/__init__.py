"""JavaScript, TypeScript and the shell on QuickJS inside WebAssembly.

``quickjs.py`` calls the engine, ``embedder.py`` drives programs, the ``*_boot.js`` files run inside QuickJS.
"""
