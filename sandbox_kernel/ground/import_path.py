"""Keeps modules beside a notebook out of our own processes, which are outside the jail."""

from __future__ import annotations

import os
import sys


def leave_present_folder() -> None:
    """Stop importing from the present folder. Called before anything else is imported.

    A kernel is started in the folder of its notebook, where anybody may have put a ``secrets.py``. ``python -m`` puts
    that folder first unless ``-P`` is given, and an empty part of ``PYTHONPATH`` means it too.
    """
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # the folder is gone: nothing can be imported from it
        here = ""
    sys.path[:] = [path for path in sys.path if path and os.path.realpath(path) != here]
