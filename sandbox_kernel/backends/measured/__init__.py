"""Measures what is enforced on this host by running small hostile programs in the very jails that run requests.

Called by the backends and the report. Read ``canaries.py`` first; ``canary_programs.py`` holds the programs.
"""
