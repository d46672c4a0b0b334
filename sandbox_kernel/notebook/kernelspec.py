"""Writes kernelspecs: ours (``sandbox-kernel install``), and those of wrapped kernels (``wrapped/kernelspecs.py``).

Where Jupyter and this package share an environment, ``pip install`` is enough: the wheel contains a kernelspec with the
command ``python3``, which Jupyter replaces by its own interpreter. A server elsewhere (JupyterHub, a system-wide
Jupyter) needs the path of *this* interpreter. Symbolic links in the path are not resolved: the link's target does not
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
from sandbox_kernel.notebook.options.own_rights import LINES_VARIABLE
from sandbox_kernel.notebook.options.parse_cell import SPEC_VARIABLE

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
DISPLAY_NAME = "Sandbox"
LOGOS = ("logo-svg.svg", "logo-32x32.png", "logo-64x64.png")


def kernel_json(
    display_name: str, executable: str, options: str | None = None, lines: str | None = None
) -> dict[str, object]:
    """Return the content of kernel.json. A test checks that ``kernelspec/`` has the same, with ``python3``.

    ``options`` are those of new notebooks, as on a ``%sandbox`` line; ``lines`` says who gives rights that lines of
    cells ask for (``own_rights.py``).
    """
    given = {SPEC_VARIABLE: options, LINES_VARIABLE: lines}
    metadata: dict[str, object] = {"debugger": True, "supported_encryption": ["curve"]}
    spec: dict[str, object] = {
        # -P: a module beside the notebook must not be imported by this process, which is outside the jail.
        "argv": [executable, "-P", "-m", "sandbox_kernel", "-f", "{connection_file}"],
        "display_name": display_name,
        # Used by papermill, for file types, and to find a kernel for a notebook whose own is missing.
        "language": "python",
        # A signal would end an async kernel; see ``interrupts``.
        "interrupt_mode": "message",
        "kernel_protocol_version": PROTOCOL_VERSION,
        "metadata": metadata,
    }
    if chosen := {name: value for name, value in given.items() if value is not None}:
        spec["env"] = chosen
    return spec


def install(
    user: bool,
    prefix: str | None,
    sys_prefix: bool,
    name: str = NAME,
    display_name: str = DISPLAY_NAME,
    options: str | None = None,
    lines: str | None = None,
) -> Path:
    """Write the kernelspec and return its folder. By default it goes to the user's Jupyter folder."""
    if sum((user, prefix is not None, sys_prefix)) > 1:
        raise InvalidRequest("--user, --prefix and --sys-prefix exclude each other; give one of them")
    if not display_name.strip():
        raise InvalidRequest("--display-name is empty; give the name for the launcher, like Sandbox")
    spec = kernel_json(display_name, sys.executable, options, lines)
    return write_kernelspec(name, spec, logo_folder(), sys.prefix if sys_prefix else prefix)


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
