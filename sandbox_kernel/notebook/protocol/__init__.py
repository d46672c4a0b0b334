"""Jupyter's kernel protocol in one thread. Read ``request_loop.py`` first, then ``channels.py``."""
