"""Tests of the buttons, the side panel and the offers; a package, so that they share the server of ``tests/browser``."""
