"""The host's side of a debugger that runs inside a session: a socket of its own, checked messages, a clock that stands.

Called by ``Session.attach_debugger`` for ``notebook/protocol/debugger.py``. Read ``debug_link.py`` first.
"""
