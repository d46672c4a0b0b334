"""Measures what is enforced on this host, by small hostile programs in jails. Read ``canaries.py`` first."""
