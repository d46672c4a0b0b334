"""The capability report as a value, a static page and a widget. Read ``capability_report.py`` first."""
