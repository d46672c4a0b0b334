"""The WASI calls that we implement ourselves: for sessions (no threads, so that they can fork) and for limits.

Read ``all_calls.py`` first.
"""
