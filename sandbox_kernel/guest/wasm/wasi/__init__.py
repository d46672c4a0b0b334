"""The WASI calls that we answer ourselves: for sessions (no threads, so that they can fork) and for limits.

Read ``all_calls.py`` first.
"""
