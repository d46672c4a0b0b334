"""Serves fetches of wasm guests: JSON requests over one listening socket, carried out by the host's ``SafeClient``.

Every request is treated as hostile input. Read ``fetch_server.py`` first.
"""
