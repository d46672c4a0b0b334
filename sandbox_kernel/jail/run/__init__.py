"""The watch loop: feeds one job, enforces its limits, ends it and returns the outcome.

Called by the backends. Read ``run_job.py`` first.
"""
