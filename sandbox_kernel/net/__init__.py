"""Network access of sandboxes: decides which requests may leave the machine, and carries them out.

One set of rules (``fetch_policy.py``) decides for two ways out: ``safe_client.py`` fetches for callers on the host,
``proxy/`` serves programs in a network namespace of their own, guests in WebAssembly among them. Names are resolved
once, on the host, and the connection goes to the address that was checked.
Import the modules: this package re-exports nothing, so that the kernel starts without importing an HTTP library.
"""
