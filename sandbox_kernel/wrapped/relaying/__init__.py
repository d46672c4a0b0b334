"""Carries messages between front ends and a kernel in its jail. Read ``relay.py`` first."""
