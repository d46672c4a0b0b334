"""Reads, checks and rewrites WebAssembly binaries before the compiler sees them.

Hostile bytes are parsed here, inside the jail, never in the host. Read ``format.py`` first.
"""
