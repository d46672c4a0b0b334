"""Carries messages between front ends and a kernel in its jail, over sockets that each side has for itself.

Started by ``launcher.py``. Every message is verified, cleaned and signed anew. Read ``relay.py`` first.
"""
