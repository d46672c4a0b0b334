"""JupyterLab's debugger inside the jail: pydevd traces the worker, a thread of ours serves the host over a socket.

Called by ``python_session.py`` when a front end starts the debugger. Read ``debug_server.py`` first.
"""
