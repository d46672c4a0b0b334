"""Programs that the host starts outside of a jail, as root or as its user: they prepare bubblewrap, or join a jail.

They run under the host's own Python. ``jail/root_user.py`` and ``jail/late_grants.py`` write their plans.
"""
