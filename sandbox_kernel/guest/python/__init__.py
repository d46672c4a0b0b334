"""The worker of a Python session: IPython's shell, its displays, completion and ``%pip``.

Read ``python_session.py`` first.
"""
