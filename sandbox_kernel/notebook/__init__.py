"""The Sandbox kernel and the ``%%sandbox`` magic, over one parser and one set of boxes. Read ``execution.py`` first."""
