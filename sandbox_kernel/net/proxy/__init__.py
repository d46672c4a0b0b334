"""The forward proxy on the host: the only way out of a jail's empty network namespace.

Every byte it reads comes from a hostile program. Read ``egress_proxy.py`` first, then ``connection.py``.
"""
