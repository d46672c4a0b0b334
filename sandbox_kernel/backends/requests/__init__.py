"""What is looked at before a run starts: the request, the command that it names, its input, the host's variables.

Used by every backend. A wrong request is a typed error, and nothing has been started. Read ``request_checks.py`` first.
"""
