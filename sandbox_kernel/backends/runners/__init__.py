"""Runners: processes of ours that run requests for this one when many run at once, so that they use many cores.

Caller: the process backend, whose results, limits and errors are the same with and without them.
Read ``crowd.py`` first.
"""
