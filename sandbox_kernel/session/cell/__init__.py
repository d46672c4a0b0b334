"""One cell: its request, the loop that watches it, its output and displays, and the result.

Called by ``session.py``. Read ``run_cell.py`` first.
"""
