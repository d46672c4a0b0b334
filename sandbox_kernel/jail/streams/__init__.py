"""Standard streams of a child: bounded output, input, prompts to the user, and the stop signal of a run.

Called by the watch loop in ``run/``. Read ``output.py`` first.
"""
