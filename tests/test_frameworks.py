"""The agent frameworks: their own suites on our adapters, and a notebook for each; only in ``make test-all``.

Each suite is a process of its own that finds the frameworks (``tests/integrations/framework_packages.py``).
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import need
from tests.integrations.framework_packages import FOLDER, variables

ROOT = Path(__file__).resolve().parents[1]
SUITES = sorted((ROOT / "tests" / "integrations").glob("test_*.py"))
NOTEBOOKS = sorted((ROOT / "notebooks" / "frameworks").glob("*.ipynb"))
ADAPTERS = sorted(path.stem for path in (ROOT / "sandbox_kernel" / "integrations").glob("*.py"))
NOT_A_FRAMEWORK = {"__init__", "machine"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run_pytest(*words: str, **more: str) -> str:
    need(FOLDER.is_dir(), "the agent frameworks are not installed; make .venv/.installed-frameworks")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout", "--timeout=300"]
    # The frameworks bring a dozen plugins that take seconds to load; none is needed.
    environment = {**variables(), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **more}
    done = subprocess.run(
        [*command, *words], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=850, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("suite", SUITES, ids=lambda path: path.stem.removeprefix("test_"))
def test_the_suite_is_green(suite: Path) -> None:
    words = ("-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto", str(suite))
    shown = run_pytest(*words, SANDBOX_KERNEL_FRAMEWORKS="1")
    assert " passed" in shown
    assert "skipped" not in shown


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_output_of_the_notebook_is_what_it_was(path: Path, tmp_path: Path) -> None:
    shown = run_pytest("-p", "nbval.plugin", "--nbval", str(path), IPYTHONDIR=str(tmp_path))
    assert " passed" in shown
    assert "skipped" not in shown


def test_every_adapter_has_a_suite_and_a_notebook() -> None:
    frameworks = set(ADAPTERS) - NOT_A_FRAMEWORK
    assert {path.stem.removeprefix("test_") for path in SUITES} >= frameworks
    assert {path.stem for path in NOTEBOOKS} == {name.replace("_", "-") for name in frameworks}
