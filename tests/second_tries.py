"""Tests that passed only at a second try: listed at the end of a run, recorded, and a failure when it happens again.

CI tries a failed test again (``--reruns``), because thousands of tests start real programs on two shared cores. That must
not hide a flaky test: the run prints every test that needed a second try, writes the list into the folder
``SANDBOX_KERNEL_RECORDS``, and fails when the record of the commit before names the same test.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

FOLDER = os.environ.get("SANDBOX_KERNEL_RECORDS")
NAME = "second-tries.json"


def commit() -> str:
    """The commit that is tested; empty where there is no repository."""
    found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip()


def again(before: dict[str, object], now: set[str], this_commit: str) -> list[str]:
    """The tests that needed a second try at this commit and at the one recorded before it."""
    names = before.get("tests")
    if before.get("commit") == this_commit or not isinstance(names, list):
        return []
    return sorted(now & set(names))


def record(tests: set[str], folder: Path, this_commit: str) -> list[str]:
    """Write the record of this run; returns the tests that the record before it names too."""
    file = folder / NAME
    before = json.loads(file.read_text()) if file.exists() else {}
    repeated = again(before, tests, this_commit)
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"commit": this_commit, "tests": sorted(tests)}, indent=1) + "\n")
    return repeated
