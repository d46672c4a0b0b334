"""Walls around kernels that people already use. Read ``launcher.py`` first, then ``relaying/relay.py``."""
