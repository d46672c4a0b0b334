"""Wheels in the image of a started Python: its memory with their modules imported, made once and kept by content.

The memory belongs to one image and to the files of the wheels, so two sandboxes with other wheels never share it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandbox_kernel.backends.wasm.booted import FACTS
from sandbox_kernel.backends.wasm.module_key import EngineSwitches
from sandbox_kernel.backends.wasm.prepare import run_preparation
from sandbox_kernel.backends.wasm.store import StoreEntry, WasmStore
from sandbox_kernel.backends.wasm.wasm_job import COMPILED, PackageFiles, TrustedFile, packages_job
from sandbox_kernel.backends.wasm.wheels import Wheels, make_wheels
from sandbox_kernel.errors import BackendUnavailable, InvalidRequest

MEMORY, LOADED = "memory.img", "loaded.json"
#: Where programs see the files of the wheels.
PLACE = "/wheels"
#: Where ``%pip`` in a session installs, and what it says of itself there (``guest/wasm/pip``).
INSTALLED, INSTALLER = "/box/packages", b"sandbox-kernel\n"
#: How long packages that a session installed may take to be imported in advance.
_INSTALLED_S = 20.0
#: Most bytes of memories and of files in the store; the least recently used go first.
_MOST_BYTES = 1 << 30
_MEMORY_NAME, _SITE_NAME = "memory-", "wheels-"


@dataclass(frozen=True)
class LoadedWheels:
    """The entry of the store with the memory in which packages are imported, and the folder with their files.

    Packages that a session installed have no folder: their files are in its work folder.
    """

    memory: StoreEntry
    folder: str | None = None

    @property
    def paths(self) -> list[str]:
        """The folders of the host that a jail must see."""
        return [self.memory.path, *([self.folder] if self.folder is not None else [])]

    @property
    def preopens(self) -> list[dict[str, object]]:
        """The folder of the files, as a folder of a guest."""
        return [_preopen(self.folder)] if self.folder is not None else []

    @property
    def failed(self) -> tuple[str, ...]:
        """The modules that could not be imported in advance."""
        return tuple(json.loads(self.memory.read(LOADED))["failed"])


def wheels_mark(wheels: Wheels | None) -> str:
    """Return the part of a saved session's digest that names its wheels."""
    return f" wheels {wheels.digest}" if wheels is not None else ""


def load_wheels(
    store: WasmStore, enforcer: str, wheels: Wheels, image: StoreEntry, switches: EngineSwitches
) -> LoadedWheels:
    """Return the memory of this image with these wheels; makes it the first time.

    Raises:
        InvalidRequest: A wheel ends or hangs Python when its modules are imported.

    """
    site_name = f"{_SITE_NAME}{wheels.digest[:40]}"
    name = f"{_MEMORY_NAME}{_key(wheels, image.files)}"
    memory = store.find(name)
    folder = store.trees.get(site_name, wheels.files)
    if memory is None:
        made = _made_of_wheels(enforcer, wheels, image, folder, switches)
        for prefix in (_MEMORY_NAME, _SITE_NAME):
            store.prune(prefix, _MOST_BYTES)
        folder = store.trees.get(site_name, wheels.files)
        memory = store.add(name, made)
    store.touch(name)
    store.touch(site_name)
    return LoadedWheels(memory, folder)


def _preopen(folder: str) -> dict[str, object]:
    return {"host": folder, "guest": PLACE, "writable": False}


def _key(wheels: Wheels, image: Mapping[str, str], place: str = PLACE) -> str:
    parts = json.dumps([wheels.digest, wheels.modules, image[COMPILED], place])
    return hashlib.sha256(parts.encode()).hexdigest()[:40]


def load_installed(
    store: WasmStore, enforcer: str, files: Mapping[str, bytes], image: StoreEntry, switches: EngineSwitches
) -> LoadedWheels | None:
    """Return the memory of this image with packages that a session has installed; makes it the first time.

    None when nothing was installed, or when the packages cannot be imported in advance: then they are imported when
    they are used, and it is not tried again.
    """
    if not any(name.endswith(".dist-info/INSTALLER") and data == INSTALLER for name, data in files.items()):
        return None
    packages = make_wheels(dict(files), ("installed packages",))
    name = f"{_MEMORY_NAME}{_key(packages, image.files, INSTALLED)}"
    memory = store.find(name)
    if memory is None:
        below = {f"{INSTALLED.removeprefix('/box/')}/{path}": data for path, data in files.items()}
        try:
            made = _make(
                enforcer, packages, image, PackageFiles(path=INSTALLED, work=below, timeout_s=_INSTALLED_S), switches
            )
        except BackendUnavailable as error:
            made = {LOADED: json.dumps({"failed": [str(error)[:500]]}).encode()}
        store.prune(_MEMORY_NAME, _MOST_BYTES)
        memory = store.add(name, made)
    store.touch(name)
    return LoadedWheels(memory) if MEMORY in memory.files else None


def _made_of_wheels(
    enforcer: str, wheels: Wheels, image: StoreEntry, folder: str, switches: EngineSwitches
) -> dict[str, bytes]:
    packages = PackageFiles(path=PLACE, folder=_preopen(folder))
    try:
        return _make(enforcer, wheels, image, packages, switches, [TrustedFile(folder)])
    except BackendUnavailable as error:
        listed = ", ".join(wheels.names[:5])
        raise InvalidRequest(
            f"the wheels ({listed}) could not be imported in WebAssembly: {error}; leave out the one that does it"
        ) from None


def _make(
    enforcer: str,
    wheels: Wheels,
    image: StoreEntry,
    packages: PackageFiles,
    switches: EngineSwitches,
    given: Sequence[TrustedFile] = (),
) -> dict[str, bytes]:
    seen = [TrustedFile(image.file(COMPILED)), TrustedFile(image.file(FACTS)), *given]
    results = (MEMORY, LOADED)
    return run_preparation(
        enforcer,
        lambda jail: packages_job(jail, image, packages, wheels.modules, results, switches),
        seen,
        results,
    )
