"""The gate, the first process of every jail: waits for one order from the host, runs its steps, reports their ends.

Standard library only, Python 3.8 or later, and no module that is slow to import. Read ``gate.py`` first.
"""
