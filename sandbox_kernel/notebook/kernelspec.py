"""Writes kernelspecs: ours (``sandbox-kernel install``), and those of wrapped kernels (``wrapped/kernelspecs.py``).

A server in another environment needs the path of *this* interpreter. Its links are not resolved: their target does not
have the virtual environment's packages, and a resolved path breaks at the next upgrade.
"""

from __future__ import annotations

import json
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from sandbox_kernel import __version__
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.notebook.options.parse_cell import LINES_VARIABLE, SPEC_VARIABLE

#: Also in kernelspec/sandbox/kernel.json; a test compares the two.
PROTOCOL_VERSION = "5.5"

BANNER = (
    f"Sandbox {__version__}: every cell runs behind walls.\n"
    "%%sandbox LANGUAGE runs a cell in another language or under other limits, %sandbox sets the notebook's defaults,\n"
    "%sandbox report shows what is held back on this machine, %sandbox help lists everything."
)
KERNEL_INFO: dict[str, object] = {
    "protocol_version": PROTOCOL_VERSION,
    "implementation": "sandbox-kernel",
    "implementation_version": __version__,
    "language_info": {
        "name": "python",
        "version": platform.python_version(),
        "mimetype": "text/x-python",
        "file_extension": ".py",
        "pygments_lexer": "ipython3",
        "codemirror_mode": {"name": "ipython", "version": 3},
        "nbconvert_exporter": "script",
    },
    "banner": BANNER,
    "help_links": [
        {"text": "Python", "url": f"https://docs.python.org/{platform.python_version().rpartition('.')[0]}"},
        {"text": "bubblewrap", "url": "https://github.com/containers/bubblewrap"},
        {"text": "WebAssembly", "url": "https://webassembly.org"},
    ],
}

NAME = "sandbox"
LOGOS = ("logo-svg.svg", "logo-32x32.png", "logo-64x64.png")


def kernel_json(
    display_name: str, executable: str, options: str | None = None, lines: str | None = None
) -> dict[str, object]:
    """Return the content of kernel.json. ``options``: as on a ``%sandbox`` line; ``lines``: see ``own_rights.py``."""
    given = {SPEC_VARIABLE: options, LINES_VARIABLE: lines}
    env = {name: value for name, value in given.items() if value is not None}
    return {
        # -P: a module beside the notebook must not be imported by this process, which is outside the jail.
        "argv": [executable, "-P", "-m", "sandbox_kernel", "-f", "{connection_file}"],
        "display_name": display_name,
        # Used by papermill, for file types, and to find a kernel for a notebook whose own is missing.
        "language": "python",
        # A signal would end an async kernel; see ``interrupts``.
        "interrupt_mode": "message",
        "kernel_protocol_version": PROTOCOL_VERSION,
        "metadata": {"debugger": True, "supported_encryption": ["curve"]},
        **({"env": env} if env else {}),
    }


def install(
    name: str, display_name: str, prefix: str | None, *, options: str | None = None, lines: str | None = None
) -> Path:
    """Write our kernelspec, as ``kernel_json`` and ``write_kernelspec`` say, and return its folder."""
    if not display_name.strip():
        raise InvalidRequest("--display-name is empty; give the name for the launcher, like Sandbox")
    return write_kernelspec(name, kernel_json(display_name, sys.executable, options, lines), logo_folder(), prefix)


def write_kernelspec(name: str, spec: Mapping[str, object], logos: Path, prefix: str | None) -> Path:
    """Write a kernelspec for this user or below ``prefix``, in place of one of the same name; returns its folder."""
    from jupyter_client.kernelspec import KernelSpecManager

    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-spec-") as made:
        folder = Path(made) / "spec"
        folder.mkdir()
        (folder / "kernel.json").write_text(json.dumps(spec, indent=2) + "\n", encoding="utf-8")
        for logo in LOGOS:
            if (logos / logo).is_file():
                shutil.copyfile(logos / logo, folder / logo)
        try:
            written = KernelSpecManager().install_kernel_spec(
                str(folder), kernel_name=name, user=prefix is None, prefix=prefix
            )
        except ValueError as error:
            raise InvalidRequest(f"--name {name!r} cannot be a kernel's name: {error}") from None
        except OSError as error:
            raise InvalidRequest(
                f"the kernelspec cannot be written to {error.filename!r}: {error.strerror}; try --user or --prefix"
            ) from None
    return Path(written)


def logo_folder() -> Path:
    """Return the folder of the logos: in the source tree, or where the wheel was installed."""
    from jupyter_core.paths import jupyter_path

    places = [Path(__file__).parents[2] / "kernelspec" / NAME, *(Path(p) / NAME for p in jupyter_path("kernels"))]
    for place in places:
        if all((place / logo).is_file() for logo in LOGOS):
            return place
    raise InvalidRequest(f"the logos are missing from {', '.join(map(str, places))}; install the package again")
