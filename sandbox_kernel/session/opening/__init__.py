"""Opens sessions: which walls, which worker, which limits; also sessions inside WebAssembly and saved ones.

Called by ``box/sessions.py``. Read ``open_session.py`` first.
"""
