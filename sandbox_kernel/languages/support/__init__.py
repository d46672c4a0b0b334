"""What languages share: the ``Recipe`` interface, compilers and their cache, toolchains, the WebAssembly catalogue.

Read ``recipe.py`` first.
"""
