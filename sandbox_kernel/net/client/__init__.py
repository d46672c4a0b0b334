"""The fetch client: ``box.fetch`` and the fetches of wasm guests, under the rules of ``net/rules``.

Names are resolved once and connections go to the address that was checked. Read ``safe_client.py`` first.
"""
