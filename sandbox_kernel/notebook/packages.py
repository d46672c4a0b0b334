"""Packages for the sessions of a notebook: ``%sandbox install NAME``, a right that the user gives.

Cells get no network for it. pip runs in a jail of its own, which has the session's Python, the pip of this environment,
the network of the user's package indexes, and a new private folder for what it installs. It installs wheels alone, so
no code of a package runs before a cell imports it. Sessions of this and later kernels are shown the folder read-only,
below ``PLACE``. ``guest/python/magics.py`` puts it on the path, ``guest/wasm/pip_in_jail.py`` runs pip.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from sandbox_kernel.backends.wasm.packages import file_hosts, usual_indexes
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest, PolicyViolation, SandboxError
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import ExecResult
from sandbox_kernel.model.notes import Wanted, WantedKind
from sandbox_kernel.notebook.options.cell_options import CellOptions, config_of
from sandbox_kernel.notebook.options.parse_cell import inner_path
from sandbox_kernel.policy import Mount, SandboxPolicy
from sandbox_kernel.policy.sandbox_policy import PACKAGES
from sandbox_kernel.untrusted.ansi import plain
from sandbox_kernel.util.own_folder import make_own_folder
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.kept_work import KeptWork
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import Rooted

#: Where sessions are shown the folders.
PLACE = f"/opt/{PACKAGES}"
#: A package as it is named: with extras and versions, and no address, path, archive or option.
_NAME = re.compile(
    r"(?!\S*\.(?i:whl|zip|t[abglx]z2?|tar)\b)[A-Za-z0-9][\w.-]{0,100}(\[[\w.,-]{1,100}\])?(([=!~]=|[<>]=?)[\w.*+!]{1,50}(,([=!~]=|[<>]=?)[\w.*+!]{1,50}){0,9})?\Z",
    re.ASCII,
)
_PIP_LINE = re.compile(r"^[ \t]*%(?:uv[ \t]+)?pip[ \t]+install[ \t]+(\S.{0,2000})$", re.MULTILINE)
#: Around what a script needs, by PEP 723.
_SCRIPT, _SCRIPT_END = "\n# /// script\n", "\n# ///\n"
_REQUIREMENTS, _REQUIREMENTS_OPTIONS = "requirements.txt", ("-r", "--requirement")
#: How much of a cell, and of a file that it names, is searched for names, and how many files are.
_MOST_BYTES, _MOST_LINES, _MOST_NAMES, _MOST_FILES = 64 << 10, 1000, 100, 10
_PIP_HOME = "/opt/pip"
_PROGRAM = (
    f"import runpy, sys; sys.path.insert(0, {_PIP_HOME!r}); "
    "runpy.run_path('/guest/wasm/pip_in_jail.py', run_name='__main__')"
)
_ARGUMENTS = (
    "install", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input", "--no-cache-dir", "--no-color",
    "--progress-bar", "off", "--no-warn-script-location", "--no-warn-conflicts", "--root-user-action", "ignore",
    "--retries", "1", "--timeout", "30",
)  # fmt: skip
_ENVIRONMENT = {"PIP_CONFIG_FILE": os.devnull, "_PIP_USE_IMPORTLIB_METADATA": "1"}
_TIMEOUT_S, _MEMORY_MB, _DISK_MB = 900.0, 4096, 4096
_MOST_SAID = 600
#: How often a running pip is told whether it must stop, in seconds.
_STOP_S = 0.2


#: The errors of cells that may name packages.
NAME_PACKAGES = ("UsageError", "ModuleNotFoundError")


def wanted(code: str, result: ExecResult) -> Wanted | None:
    """Return the right to install what a cell lacked: by its ``%pip install``, script block or ``requirements.txt``."""
    ename, names, code = result.error.ename if result.error is not None else "", list[str](), code[:_MOST_BYTES]
    if ename == "UsageError":
        words = " ".join(_PIP_LINE.findall(code)).split()
        pairs = list(zip(["", *words], words, strict=False))
        files = [word for before, word in pairs if before in _REQUIREMENTS_OPTIONS][:_MOST_FILES]
        names = [word for before, word in pairs if before not in _REQUIREMENTS_OPTIONS]
        names = [name for name in (*names, *_named_in(*files)) if not name.startswith("-")]
    elif ename == "ModuleNotFoundError":
        names = _declared(code)
    return _right(names)


def _right(names: Iterable[str]) -> Wanted | None:
    names = [name.replace(" ", "") for name in names][:_MOST_NAMES]
    is_plain = bool(names) and all(map(_NAME.match, names))
    return Wanted(WantedKind.PACKAGE, " ".join(dict.fromkeys(names))) if is_plain else None


def _declared(code: str) -> list[str]:
    """Return what the script block of a cell names, else ``requirements.txt``."""
    block = f"\n{code}\n".partition(_SCRIPT)[2].partition(_SCRIPT_END)[0]
    text = re.sub(r"(?m)^# ?", "", block)
    names = re.findall(r"[\"']([^\"']*)[\"']", text.partition("dependencies")[2].partition("]")[0])
    return names or _named_in(_REQUIREMENTS)


def _named_in(*files: str) -> list[str]:
    """Return the lines of files beside the notebook, without comments; of hidden ones none."""
    lines = list[str]()
    with Rooted.at(".") as folder:
        for path in files:
            with contextlib.suppress(SandboxError):
                text = b"" if is_hidden(inner_path(path)) else folder.read_part(path, 0, _MOST_BYTES)[0]
                few = text.decode("utf-8", "replace").splitlines()[:_MOST_LINES]
                lines += [re.sub(r"(^|\s)#.*", "", line).strip() for line in few]
    return [line for line in lines if line]


class Packages:
    """The installed packages of a notebook, one folder for each install. Without ``kept`` they end with the kernel."""

    def __init__(self, kept: KeptWork | None) -> None:
        self._root = None if kept is None else os.path.join(kept.path, PACKAGES)
        #: Whether the notebook was searched for packages that it names.
        self.searched = False
        #: How sessions are shown the folders; those of earlier kernels of the notebook come first.
        self.mounts: tuple[Mount, ...] = ()
        with contextlib.suppress(OSError):
            names = sorted(filter(str.isdecimal, os.listdir(self._root or "/nowhere")), key=int)
            self.mounts = tuple(self._mount(name) for name in names)

    def given(self, options: CellOptions) -> CellOptions:
        """Return the options with what is installed; other machines (``dask``) do not have it."""
        new = tuple(mount for mount in self.mounts if mount not in options.mounts)
        return replace(options, mounts=(*options.mounts, *new)) if new and options.backend != "dask" else options

    def missing(self, code: str, options: CellOptions) -> Wanted | None:
        """Return the right to install what a notebook names at its start and its Python lacks."""
        self.searched = True
        places = [mount.host for mount in self.mounts] + ([] if options.python else sys.path)

        def is_there(name: str) -> bool:
            project = re.match(r"[\w.-]*", name)
            return project is not None and any(importlib.metadata.distributions(name=project[0], path=places))

        return _right([name for name in _declared(code[:_MOST_BYTES])[:_MOST_NAMES] if not is_there(name)])

    def install(self, names: Sequence[str], options: CellOptions, stop: threading.Event) -> str:
        """Install packages, and return which; ``stop`` ends it. Raises ``SandboxError``; nothing is left then."""
        if not names or not all(map(_NAME.match, names)):
            raise InvalidRequest(
                f"%sandbox install takes names of packages, like pandas or 'pandas>=2', got {' '.join(names)[:80]!r}"
            )
        new = self._mount(str(1 + max((int(os.path.basename(mount.host)) for mount in self.mounts), default=0)))
        pip, indexes = importlib.util.find_spec("pip"), usual_indexes()
        if pip is None or pip.origin is None or not indexes:
            raise PolicyViolation(
                "packages cannot be fetched: pip is not beside sandbox-kernel, or knows no index without a "
                "password; install them into an environment, and begin the session with it: --python PATH"
            )
        policy = SandboxPolicy.preset("standard").mount(os.path.dirname(pip.origin), f"{_PIP_HOME}/pip")
        places, more = [urlsplit(address) for address in indexes], list[str]()
        ports = {str(one.hostname): one.port for one in places}
        ports |= dict.fromkeys(file_hosts(ports))
        for host, port in ports.items():
            policy = policy.allow_domain(host, *([port] if port else []))
        for place, address in zip(places, indexes, strict=True):
            more += ["--extra-index-url" if more else "--index-url", address]
            more += ["--trusted-host", place.netloc] if place.scheme == "http" else []
        for mount in self.mounts:
            policy = policy.mount(mount.host, mount.guest)
        # No program may be given the kept folder: pip writes to a temporary one, which is moved there.
        with tempfile.TemporaryDirectory(prefix="sandbox-kernel-pip-") as beside:
            os.mkdir(made := os.path.join(beside, "made"), 0o700)
            order = {
                "pip": _PIP_HOME, "folder": "/tmp", "shown": PLACE,
                "arguments": [*_ARGUMENTS, "--target", new.guest, *more, *names],
            }  # fmt: skip
            config = replace(config_of(options), pool_size=0)
            policy = policy.mount(made, new.guest, writable=True)
            with Sandbox(policy, "process", config=config, allow_private_for=ports) as box:
                result = asyncio.run(_run_pip(box, json.dumps(order), stop))
            if not result.ok:
                raise PolicyViolation(f"{' '.join(names)[:200]} was not installed: {_why(result)}")
            if not (found := installed(made)):
                raise PolicyViolation(f"{' '.join(names)[:200]}: nothing was to be installed; it is there already")
            part = f"{new.host}.part"  # a kernel that is killed meanwhile leaves no half of a package
            shutil.rmtree(part, ignore_errors=True)
            try:
                shutil.move(made, part)
                os.rename(part, new.host)
            except OSError as error:
                shutil.rmtree(part, ignore_errors=True)
                raise PolicyViolation(f"{' '.join(names)[:200]} was not installed: {error}") from None
        self.mounts = (*self.mounts, new)
        return found

    def _mount(self, name: str) -> Mount:
        if self._root is None:
            self._root = os.path.join(tempfile.mkdtemp(prefix="sandbox-kernel-"), PACKAGES)
            atexit.register(shutil.rmtree, os.path.dirname(self._root), ignore_errors=True)
        make_own_folder(self._root)
        return Mount(os.path.join(self._root, name), f"{PLACE}/{name}")


async def _run_pip(box: Sandbox, order: str, stop: threading.Event) -> ExecResult:
    cancel = asyncio.Event()
    run = asyncio.ensure_future(
        box.arun(
            _PROGRAM, "python", timeout=_TIMEOUT_S, memory_mb=_MEMORY_MB, stdin=order, env=_ENVIRONMENT,
            limits=Limits(disk_mb=_DISK_MB, open_files=1024), cancel=cancel,
        )
    )  # fmt: skip
    while not (await asyncio.wait({run}, timeout=_STOP_S))[0]:
        if stop.is_set():
            cancel.set()
    return await run


def installed(folder: str) -> str:
    """Return the packages in a folder, with their versions."""
    with contextlib.suppress(OSError):
        names = [name.removesuffix(".dist-info") for name in os.listdir(folder) if name.endswith(".dist-info")]
        return ", ".join(display_name(name).replace("-", " ", 1) for name in sorted(names))
    return ""


def _why(result: ExecResult) -> str:
    """Return pip's own words, and the hosts that it could not reach: an index may have its files on another one."""
    refused = ", ".join(dict.fromkeys(each.subject for each in result.violations))
    said = plain(f"{result.stderr}\n{result.stdout}")
    error = said.partition("ERROR: ")[2] or said.strip().rpartition("\n")[2] or str(result.status)
    return f"{error[:_MOST_SAID].strip()}{f' (not allowed: {refused[:200]})' if refused else ''}"
