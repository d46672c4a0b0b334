"""The Dask backend: requests run on the workers of a cluster, each behind the walls of its machine.

Answers of workers are checked bytes, never pickles of ours. Read ``dask_backend.py`` first.
"""
