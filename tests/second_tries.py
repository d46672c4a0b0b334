"""Tests that passed only at a second try: listed at the end of a run, recorded, and a failure when it happens again.

CI tries a failed test again (``--reruns``), because thousands of tests start real programs on two shared cores. That must
not hide a flaky test: the run prints every test that needed a second try, writes the list into the folder
``SANDBOX_KERNEL_RECORDS``, and fails when the commit that was tested before needed a second try of the same test.

CI has parts (as root, as an ordinary user). Each part has a record of its own, named by ``SANDBOX_KERNEL_PART``.
"""

import json
import os
import subprocess
from pathlib import Path

#: Where records are kept; nothing is recorded without it.
FOLDER = os.environ.get("SANDBOX_KERNEL_RECORDS")
#: The part of CI that this run is.
PART = os.environ.get("SANDBOX_KERNEL_PART", "all")


def commit() -> str:
    """The commit that is tested: ``SANDBOX_KERNEL_COMMIT`` where a copy of the tree is, or that of the repository."""
    named = os.environ.get("SANDBOX_KERNEL_COMMIT")
    if named:
        return named
    found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip()


def file_name(part: str) -> str:
    """The name of the record of one part of CI."""
    return f"second-tries-{part}.json"


def record(tests: set[str], folder: Path, this_commit: str, part: str = PART) -> list[str]:
    """Write the record of this run; returns the tests that needed a second try at the commit before it too.

    Runs of the same commit add to one record, so that running CI again does not make it forget the commit before.
    """
    file = folder / file_name(part)
    known = json.loads(file.read_text()) if file.exists() else {"commit": "", "tests": [], "before": []}
    if known["commit"] == this_commit:
        before, every = known["before"], tests | set(known["tests"])
    else:
        before, every = known["tests"], tests
    folder.mkdir(parents=True, exist_ok=True)
    written = file.with_suffix(".new")
    written.write_text(json.dumps({"commit": this_commit, "tests": sorted(every), "before": before}, indent=1) + "\n")
    os.replace(written, file)
    return sorted(tests & set(before))
