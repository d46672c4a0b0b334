"""What leaves the machine, and only that.

One policy engine (``fetch_policy``) decides for three doors: ``safe_client`` fetches for the host's own callers,
``egress_proxy`` serves programs in a network namespace of their own, and ``fetch_bridge`` serves wasm guests through
the client. Names are resolved once, on the host, and the connection goes to the very address that was checked.
Import the modules; this package re-exports nothing, so that the kernel starts without an HTTP library.
"""
