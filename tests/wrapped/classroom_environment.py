"""Makes the environment in which the tests run nbgrader: ``.venv/classroom``, on top of the packages of ``.venv``.

nbgrader switches extensions on in every JupyterLab of its environment. The browser tests' JupyterLab must not have them.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(sys.prefix) / "classroom"


def main() -> None:
    """Make the environment anew where something is missing; pip adds only what the packages around it lack."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", FOLDER], check=True)
    own = Path(sysconfig.get_path("purelib", vars={"base": str(FOLDER), "platbase": str(FOLDER)}))
    (own / "around.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    words = ["-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", "nbgrader"]
    subprocess.run([FOLDER / "bin" / "python", *words], check=True)


if __name__ == "__main__":
    main()
