"""The Dask backend: runs requests on the workers of a cluster, each behind the walls of its machine.

Workers answer with bytes that are checked here, never with pickled objects of this package.
Read ``dask_backend.py`` first.
"""
