"""Wheels in the image of a started Python: its memory with their modules imported, made once and kept by content.

The memory belongs to one image and to the files of the wheels, so two sandboxes with other wheels never share it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from sandbox_kernel.backends.wasm.booted import FACTS
from sandbox_kernel.backends.wasm.module_key import EngineSwitches
from sandbox_kernel.backends.wasm.prepare import run_preparation
from sandbox_kernel.backends.wasm.store import StoreEntry, WasmStore
from sandbox_kernel.backends.wasm.wasm_job import COMPILED, TrustedFile, packages_job
from sandbox_kernel.backends.wasm.wheels import Wheels
from sandbox_kernel.errors import BackendUnavailable, InvalidRequest

MEMORY, LOADED = "memory.img", "loaded.json"
#: Where programs see the files of the wheels.
PLACE = "/wheels"
#: Most bytes of memories and of files in the store; the least recently used go first.
_MOST_BYTES = 1 << 30
_MEMORY_NAME, _SITE_NAME = "memory-", "wheels-"


@dataclass(frozen=True)
class LoadedWheels:
    """The folder with the files of wheels, and the entry of the store with the memory in which they are imported."""

    folder: str
    memory: StoreEntry

    @property
    def paths(self) -> tuple[str, str]:
        """The folders of the host that a jail must see."""
        return (self.folder, self.memory.path)

    @property
    def preopen(self) -> dict[str, object]:
        """The folder of the files, as a folder of a guest."""
        return _preopen(self.folder)

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
        made = _make(enforcer, wheels, image, folder, switches)
        for prefix in (_MEMORY_NAME, _SITE_NAME):
            store.prune(prefix, _MOST_BYTES)
        folder = store.trees.get(site_name, wheels.files)
        memory = store.add(name, made)
    store.touch(name)
    store.touch(site_name)
    return LoadedWheels(folder, memory)


def _preopen(folder: str) -> dict[str, object]:
    return {"host": folder, "guest": PLACE, "writable": False}


def _key(wheels: Wheels, image: Mapping[str, str]) -> str:
    parts = json.dumps([wheels.digest, wheels.modules, image[COMPILED]])
    return hashlib.sha256(parts.encode()).hexdigest()[:40]


def _make(enforcer: str, wheels: Wheels, image: StoreEntry, folder: str, switches: EngineSwitches) -> dict[str, bytes]:
    given = [TrustedFile(image.file(COMPILED)), TrustedFile(image.file(FACTS)), TrustedFile(folder)]
    try:
        return run_preparation(
            enforcer,
            lambda jail: packages_job(jail, image, _preopen(folder), PLACE, wheels.modules, (MEMORY, LOADED), switches),
            given,
            (MEMORY, LOADED),
        )
    except BackendUnavailable as error:
        listed = ", ".join(wheels.names[:5])
        raise InvalidRequest(
            f"the wheels ({listed}) could not be imported in WebAssembly: {error}; leave out the one that does it"
        ) from None
