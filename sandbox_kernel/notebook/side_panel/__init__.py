"""Answers the requests of the side panel in JupyterLab: what changed, the tree of states, limits, and changes to them.

Called by ``kernel.py`` for each ``sandbox_request``. Read ``panel_request.py`` first.
"""
