"""The egress proxy: the way out for programs in a network namespace of their own. Read ``connection.py`` first."""
