"""The host's side of one worker, which is hostile: its jail, channel and checkpoints. Read ``worker.py`` first."""
