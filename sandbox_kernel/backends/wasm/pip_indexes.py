"""Which package indexes ``%pip`` inside WebAssembly asks when the user names none: those of pip on this host.

They are read as pip documents it: its environment variables, then its configuration files, then the default that pip
itself has. pip is asked for that default alone, because loading all of it takes longer than opening a session.
"""

from __future__ import annotations

import configparser
import contextlib
import os
import sys
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

#: The options, in the order in which their addresses are asked.
_OPTIONS = ("index-url", "extra-index-url")
_SECTIONS = ("global", "install")


def usual_indexes() -> list[str]:
    """Return the addresses of the simple indexes; empty when pip is told to use none, or is not installed.

    An address with a user name or password is left out: it is a secret of the host, and no program inside gets it.
    """
    settings = read_settings(configuration_files(os.environ), os.environ)
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        return []
    first, *more = (settings.get(option, "").split() for option in _OPTIONS)
    found = [*(first or _default()), *(address for addresses in more for address in addresses)]
    return [address for address in found if _is_open(address)]


def configuration_files(environment: Mapping[str, str]) -> list[str]:
    """Return the names of pip's configuration files; later ones win."""
    named = environment.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return []
    home = os.path.expanduser("~")
    shared = environment.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")
    own = environment.get("XDG_CONFIG_HOME") or f"{home}/.config"
    files = [f"{folder}/pip/pip.conf" for folder in shared if folder] + ["/etc/pip.conf", f"{home}/.pip/pip.conf"]
    files += [f"{own}/pip/pip.conf", f"{sys.prefix}/pip.conf"]
    return [*files, *([named] if named else [])]


def read_settings(files: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the options of ``pip install``; what the environment says wins. A file that is damaged says nothing."""
    found: dict[str, str] = {}
    for path in files:
        parser = configparser.RawConfigParser()
        with contextlib.suppress(configparser.Error, UnicodeDecodeError):
            parser.read(path, encoding="utf-8")
            for section in _SECTIONS:
                found.update(parser.items(section) if parser.has_section(section) else ())
    for option in (*_OPTIONS, "no-index"):
        if value := environment.get(f"PIP_{option.upper().replace('-', '_')}"):
            found[option] = value
    return found


def _default() -> list[str]:
    try:
        from pip._internal.models.index import PyPI
    except ImportError:
        return []
    return [str(PyPI.simple_url)]


def _is_open(address: str) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and "@" not in parts.netloc
