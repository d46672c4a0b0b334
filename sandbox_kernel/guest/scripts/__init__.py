"""Programs that run other programs: shell sessions, SQL cells, R programs, Jupyter kernels, candidates of evaluations.

Read ``shell_session.py`` first.
"""
