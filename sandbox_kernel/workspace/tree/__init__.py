"""File trees that a hostile program made, always used beneath a root descriptor. Read ``rooted.py`` first."""
