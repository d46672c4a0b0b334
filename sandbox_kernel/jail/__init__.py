"""Jails: the only package that starts child processes. Input: argv, policy and limits. Output: events and one outcome.

Called by backends and sessions. Read ``walls.py`` (what a jail is made of) and ``run_job.py`` (how a run is
watched) first; ``rules/bubblewrap.py`` lists the walls. A ``Step`` is one process of a run (``gate_messages.py``: it is
sent to the gate as it is); ``rlimits`` in ``languages/recipe.py`` makes its limits.
"""
