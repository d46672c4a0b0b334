"""ipykernel's own tests, from its source distribution, run against the kernelspec of this tree.

What differs on purpose stands in ``ipykernel_differences.py``, with the reason.
"""

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conformance.ipykernel_differences import BY_TIMING, reasons
from tests.conftest import need

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VERSION = "7.4.0"
DIGEST = "4330114d22b9b33575b2c7c68753fc8faabbbcfbc60b0cdff9f14dd4ce63742f"
#: By file: how many of its tests pass at least.
FILES = {
    "test_message_spec.py": 10,
    "test_async.py": 2,
    "test_kernel.py": 15,
    "test_subshells.py": 10,
    "test_debugger.py": 12,
}
#: Seconds that a cell may take, by file, where less than usual is enough: each cell of ``test_run_concurrently_sequence``
#: waits for another one that cannot run beside it, until it is stopped.
CELL_TIMEOUTS = {"test_subshells.py": "10"}

_SETTINGS = "[pytest]\ntimeout = 120\nmarkers =\n    flaky: tried again\n"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ipykernel's tests and a Jupyter path on which ``python3`` is the Sandbox kernel."""
    installed = importlib.metadata.version("ipykernel")
    need(installed == VERSION, f"the tests of ipykernel {VERSION} need that version; {installed} is installed")
    place = tmp_path_factory.mktemp("ipykernel")
    wanted = place / "wanted.txt"
    wanted.write_text(f"ipykernel=={VERSION} --hash=sha256:{DIGEST}\n")
    fetch = ["download", "--no-deps", "--no-binary", "ipykernel", "--no-build-isolation", "--require-hashes"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *fetch, "-q", "-d", place, "-r", wanted], capture_output=True, text=True
    )
    need(done.returncode == 0, f"the source distribution of ipykernel cannot be fetched: {done.stderr.strip()[-300:]}")
    with tarfile.open(place / f"ipykernel-{VERSION}.tar.gz") as archive:
        archive.extractall(place, filter="data")
    (place / "run" / "tests").mkdir(parents=True)
    for name in ("__init__.py", "utils.py", *FILES):
        shutil.copy(place / f"ipykernel-{VERSION}" / "tests" / name, place / "run" / "tests")
    shutil.copy(HERE / "ipykernel" / "suite_conftest.py", place / "run" / "conftest.py")
    (place / "run" / "pytest.ini").write_text(_SETTINGS)
    (place / "jupyter" / "kernels").mkdir(parents=True)
    (place / "jupyter" / "kernels" / "python3").symlink_to(ROOT / "kernelspec" / "sandbox")
    return place


def run(suite: Path, name: str, *tests: str) -> dict[str, str]:
    """How each test of a file, or those that are named, ended (passed, failed, skipped), by its name."""
    env = {
        **{key: value for key, value in os.environ.items() if not key.startswith("PYTEST")},
        "JUPYTER_PATH": str(suite / "jupyter"),
        "PYTHONPATH": str(ROOT),
        "IPYTHONDIR": str(suite / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(suite / "runtime"),
    }
    if name in CELL_TIMEOUTS:
        env["SANDBOX_KERNEL_OPTIONS"] = f"--timeout {CELL_TIMEOUTS[name]}"
    record = suite / f"{name}.xml"
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={record}"]
    chosen = [f"tests/{test}" for test in tests] or [f"tests/{name}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *chosen], cwd=suite / "run", env=env, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    print(done.stdout[-20_000:])
    found = {}
    for case in ElementTree.parse(record).iter("testcase"):
        kinds = {child.tag for child in case}
        ended = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        found[f"{name}::{case.get('name')}"] = ended
    return found


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.slow
def test_the_kernel_passes_ipykernels_tests_but_for_those_that_differ_on_purpose(suite: Path, name: str) -> None:
    ended = run(suite, name)
    expected = {test for test in reasons() if test.startswith(f"{name}::")}
    by_timing = {test for tests in BY_TIMING.values() for test in tests}
    failed = {test for test, how in ended.items() if how == "failed"} - by_timing
    if surprising := failed - expected:
        # Some wait for a second only, which a loaded machine does not keep: they may try once more.
        again = run(suite, name, *sorted(surprising))
        failed -= {test for test in surprising if again[test] == "passed"}
    assert failed == expected
    assert sum(how == "passed" for how in ended.values()) >= FILES[name] - len(surprising)
