"""Wasm programs that the gate starts before their order comes: the embedder and the session worker.

Read ``warm_run.py`` first.
"""
