"""The tree of a session's states: every kept cell is a node, going back never destroys, any node can be gone to.

Called by ``session.py`` and ``worker/``. Read ``node.py`` (what a user sees), then ``state_tree.py`` (the bookkeeping).
"""
