"""Functions of the host that a program inside may call, checked and counted. Read ``call_server.py`` first."""
