"""Counts and limits memory, processes, CPU time and disk of one jail, by control group or by reading /proc.

Called by the watch loop in ``run/``. Read ``meter.py`` (the interface) first.
"""
