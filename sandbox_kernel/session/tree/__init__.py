"""The tree of a session's states: every kept cell is a node; going back destroys none, and each can be gone to."""
