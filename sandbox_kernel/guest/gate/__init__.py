"""The first process of every jail: it waits for one order from the host, starts each step, reports how it ended.

Standard library only, Python 3.8 or later, and nothing that is slow to import. Read ``gate.py`` first.
"""
