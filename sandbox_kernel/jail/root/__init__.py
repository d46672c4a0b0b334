"""What a host that runs as root does before bubblewrap: become another user, and show paths that only root can reach.

Called by ``kinds/bubblewrap_jail.py``. Read ``root_plan.py`` first.
"""
