"""What goes on between the cells of a Python session: whose output a text is, and the event loop.

Called by ``python_session.py``. Read ``belonging.py`` first.
"""
