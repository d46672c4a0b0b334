"""Sends messages of the kernel to the page: ``kernel_door.py``, read it first. The magic's way is ``magics.py``."""
