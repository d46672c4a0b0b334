"""The capability report: measured lines as a value, as a static page and as a widget.

Called by ``Sandbox.report()`` and the doors. Read ``capability_report.py`` first.
"""
