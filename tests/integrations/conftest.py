"""The frameworks are large and not in ``.venv``: ``tests/test_frameworks.py`` runs each file of this folder where they are.

Everywhere else these tests are not collected.
"""

import os

import pytest

collect_ignore_glob = [] if os.environ.get("SANDBOX_KERNEL_FRAMEWORKS") else ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    """Know the marks that langchain-tests puts on tests of other things; the plugins behind them are not installed."""
    for mark in ("benchmark", "vcr"):
        config.addinivalue_line("markers", f"{mark}: of langchain-tests, not used here")
