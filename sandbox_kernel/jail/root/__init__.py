"""What a host that runs as root needs before bubblewrap: another user, and paths that only root can reach.

Called by ``kinds/bubblewrap_jail.py``. Read ``root_plan.py`` first.
"""
