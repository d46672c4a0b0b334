"""Decides what may be reached: domains, ports, addresses, rates. Pure decisions, no sockets.

Called by the proxy and the fetch client. Read ``fetch_policy.py`` first.
"""
