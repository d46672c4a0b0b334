"""Control groups: finds where this host may make them, makes one for each jail, and removes leftovers.

Called by the meters. Read ``cgroup_place.py`` (where, a pure function) and ``cgroup_leaf.py`` (one jail's group) first.
"""
