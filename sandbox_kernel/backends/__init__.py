"""Backends run one request and return one result. Read ``base.py`` (the interface) first, then ``process.py``."""
