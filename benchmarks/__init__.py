"""One command a question: ``python -m benchmarks.bench_NAME``. Each compares with peers in the same run."""

import compileall
from pathlib import Path

# Installed packages, as the peers are, have their modules compiled; a checkout has not, where Python may not write.
compileall.compile_dir(Path(__file__).resolve().parents[1] / "sandbox_kernel", quiet=2)
