"""Backends run one request and return one result: an OS-enforced process, WebAssembly, or a Dask cluster.

A backend promises only what was measured on this host (``probes/``). Called by ``box/`` and ``session/``.
Read ``base.py`` (the interface) first, then ``process.py``.
"""
