"""Programs that run other languages: shell sessions, SQL cells, R programs.

Read ``shell_session.py`` first.
"""
