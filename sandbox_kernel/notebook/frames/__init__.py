"""Widgets and libraries in frames. Frames are hostile: ``comm_gate.py`` decides which messages pass."""
