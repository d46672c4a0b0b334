"""The Dask backend: runs requests on the workers of a cluster, each behind the walls of its machine."""
