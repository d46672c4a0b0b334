"""One cell: its request, the loop that watches it (``run_cell.py``), its output and displays, and the result."""
