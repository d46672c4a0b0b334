"""Network access of sandboxes: one set of rules (``fetch_policy.py``), a client for the host, a proxy for programs.

Re-exports nothing, so that the kernel starts without importing an HTTP library.
"""
