"""The host's side of one worker: its jail, its channel, its checkpoints and its files.

The worker is hostile: every message is checked (``message_reader.py``). Read ``worker.py`` first.
"""
