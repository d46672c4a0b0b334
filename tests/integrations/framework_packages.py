"""Installs the agent frameworks into ``.venv/frameworks``, a folder that their tests put before the packages of ``.venv``.

They want other versions of some packages than the rest of the tests, so they are no part of ``.venv`` itself.
``frameworks.txt`` names every package with its version, and pip takes them as they are: without looking for what they
depend on, it takes a fraction of the time. Packages that no test and no notebook imports (clients of models, above all)
are not in the list; a test that comes to need one fails with its name.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("frameworks.txt")
FOLDER = Path(sys.prefix) / "frameworks"


def variables() -> dict[str, str]:
    """The variables of a process of this Python that finds the frameworks, and this tree's package."""
    path = [str(FOLDER), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def main() -> None:
    """Install what the list names and the folder lacks."""
    words = ["install", "--quiet", "--no-deps", "--no-compile", "--retries", "10", "--upgrade", "--target", FOLDER]
    subprocess.run([sys.executable, "-m", "pip", *words, "-r", LIST], check=True)


if __name__ == "__main__":
    main()
