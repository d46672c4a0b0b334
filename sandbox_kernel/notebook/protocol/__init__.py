"""Jupyter's kernel protocol in one thread: sockets, queues of requests, replies, status messages.

Used by ``python -m sandbox_kernel -f FILE``. Read ``request_loop.py`` first, then ``channels.py``.
"""
