"""Counts and limits memory, processes, CPU time and disk of one jail, by control group or by reading /proc.

Called by the jails and the watch loop. Read ``meter.py`` (the interface) first; ``cgroup_place.py`` decides where
control groups are made.
"""
