"""Runs a Jupyter kernel of the user's inside a jail and gives the host connections to its ports.

The gate calls it as the step of a job (``wrapped/inner_kernel.py`` on the host). Read ``run_kernel.py`` first.
"""
