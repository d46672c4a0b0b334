"""Interfaces of agent frameworks, one file each; each needs the extra of the same name."""
