"""``%pip``, ``%conda`` and the like inside a session: runs pip where there is network, else says what to allow.

The environment belongs to the host and is read-only, so packages go into a folder of the session, which becomes the
first entry of ``sys.path``. They are part of the work folder, so a rollback removes them too.
"""

from __future__ import annotations

import importlib
import os
import shlex
import sys

from IPython.core.error import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

TOOLS = ("pip", "conda", "mamba", "micromamba", "uv")
FOLDER = "packages"

_NO_NETWORK = (
    "packages are not installed inside this sandbox: it has no network and its environment is read-only. "
    "Install them into the environment outside and start the session with it (--python /path/to/venv), or begin a "
    "session that may reach the package index, with variables of its own: "
    "%%sandbox --session web {allow} on a cell with %pip install {what}"
)
_NOT_PIP = "%{tool} cannot install here: the environment is read-only; %pip install puts packages into the work folder"
#: Options of pip that choose where packages go, or that install none.
_PLACES = ("-t", "--target", "--user", "--prefix", "--root", "--dry-run", "-h", "--help")


class Installer:
    """One of the magics; IPython calls it with the rest of its line."""

    def __init__(self, shell: InteractiveShell, tool: str) -> None:
        self._shell = shell
        self._tool = tool
        self.__doc__ = f"%{tool}: packages for this session, where it may reach a package index."

    def __call__(self, line: str) -> None:
        """Run the line, or raise ``UsageError``, which says why that is not possible."""
        words = line.split()
        if self._tool == "pip" and words[:1] != ["install"]:
            self._pip(line)
            return
        what = " ".join(words[1:] if words[:1] == ["install"] else words) or "PACKAGE"
        if "https_proxy" not in os.environ:
            allow = " ".join(f"--allow-net {host}" for host in _index_hosts())
            raise UsageError(_NO_NETWORK.format(allow=allow, what=what))
        if self._tool != "pip":
            raise UsageError(_NOT_PIP.format(tool=self._tool))
        self._install(words[1:], line.partition("install")[2])

    def _install(self, words: list[str], rest: str) -> None:
        folder = os.path.join(os.environ.get("HOME", os.getcwd()), FOLDER)
        chosen = any(word.split("=")[0] in _PLACES for word in words)
        where = "" if chosen else f" --target {shlex.quote(folder)}"
        # No warnings about a newer pip, which cannot be installed here, or about scripts outside of PATH.
        self._pip(f"install --disable-pip-version-check --no-warn-script-location{where}{rest}")
        if not chosen and folder not in sys.path:
            sys.path.insert(0, folder)
        importlib.invalidate_caches()

    def _pip(self, words: str) -> None:
        self._shell.system(f"{shlex.quote(sys.executable)} -m pip {words}")  # type: ignore[no-untyped-call]


def _index_hosts() -> list[str]:
    """Return the hosts that pip asks when nobody names an index; a word to replace where there is no pip."""
    try:
        from pip._internal.models.index import PyPI
    except ImportError:
        return ["DOMAIN-OF-THE-INDEX"]
    return [PyPI.netloc, PyPI.file_storage_domain]
