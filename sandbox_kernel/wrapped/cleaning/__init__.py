"""Cleans the messages of a wrapped kernel before a page or a front end gets them; what it does not know is dropped.

Called by ``relaying/relay.py``. Pure functions; read ``clean_outputs.py`` first.
"""
