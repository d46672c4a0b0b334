"""Sends messages to the page: streams, displays, panels, prompts. One class for each of the two doors.

Called by ``execution.py``. Read ``kernel_door.py`` first.
"""
