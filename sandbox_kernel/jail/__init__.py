"""Jails: the only room that starts a child process. argv, policy and limits in; output events and one outcome out.

Called by backends and sessions. Read ``core/walls.py`` (what a jail is made of) and ``run/run_job.py`` (how a run is
watched) first; ``rules/bubblewrap.py`` lists the walls.
"""
