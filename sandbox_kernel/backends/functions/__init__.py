"""Host functions: functions of the host that a program inside a sandbox may call, checked and counted.

Callers: the process and wasm backends, sessions, and ``Sandbox``. Read ``call_server.py`` first.
"""
