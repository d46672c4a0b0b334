"""The host's side of a worker, which is hostile: its jail, channel, checkpoints. Read ``jailed_worker.py`` first."""
