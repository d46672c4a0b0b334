"""Saves the variables of a Python session to a file and makes them again in another session, inside the jail only.

``python_session.py`` calls ``save_answers.py``. Read ``save_state.py`` first.
"""
