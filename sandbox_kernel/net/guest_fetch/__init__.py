"""The fetch of wasm guests: JSON over one listening socket, answered by the host's client.

Everything that comes in is hostile. Read ``fetch_server.py`` first.
"""
