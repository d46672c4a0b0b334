"""Walls around kernels that people already use: starts any installed kernel in a jail and relays its five channels.

Jupyter starts it in two ways, ``wrapped/kernelspecs.py`` (``sandbox-kernel wrap``) and ``wrapped/provisioner.py``; both
start the same program, ``wrapped/launcher.py``. Read that first, then ``relaying/relay.py``.
"""
