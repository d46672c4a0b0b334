"""Measures what is enforced on this host by running small hostile programs in jails like those that run requests.

Called by the backends and the report. Read ``canaries.py`` first; ``canary_programs.py`` holds the programs.
"""
