"""Every benchmark, one after the other: ``make bench``. Each answers one question and can be run alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run each ``bench_*.py`` that is a program; what one prints is Markdown for docs/benchmarks.md."""
    failed = []
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        if '__name__ == "__main__"' not in path.read_text():
            continue
        print(f"\n## python -m benchmarks.{path.stem}\n", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{path.stem}"], check=False).returncode:
            failed.append(path.stem)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
