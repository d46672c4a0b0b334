"""Reads wheels of pure Python, and keeps the memory of a started Python in which their modules are imported.

A wheel is hostile input: what it says of itself is checked before anything is unpacked, and nothing of it runs here.
The memory is made once and kept by content: it belongs to one image and to the files of the wheels, so two sandboxes
with other wheels never share it.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from sandbox_kernel.backends.wasm.prepare import run_preparation
from sandbox_kernel.backends.wasm.store import StoreEntry, WasmStore
from sandbox_kernel.backends.wasm.wasm_job import COMPILED, FACTS, EngineSwitches
from sandbox_kernel.errors import BackendUnavailable, InvalidRequest
from sandbox_kernel.limits import quoted

#: Most wheels, bytes of one wheel, files of all of them, and bytes of these files.
MOST_WHEELS, MOST_WHEEL_BYTES, MOST_FILES, MOST_BYTES = 100, 64 << 20, 20_000, 256 << 20
_MOST_NAME, _MOST_PART_BYTES = 1024, 255
_FILE_NAME = re.compile(
    r"(?P<name>[A-Za-z0-9._]+)-(?P<version>[A-Za-z0-9._+!]+)(-\d[^-]*)?"
    r"-(?P<python>[A-Za-z0-9._]+)-(?P<abi>[A-Za-z0-9._]+)-(?P<platform>[A-Za-z0-9._]+)\.whl\Z"
)
_NATIVE = (".so", ".pyd", ".dll", ".dylib", ".a")
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_MODULE = re.compile(r"[^\W\d]\w*\Z")


@dataclass(frozen=True)
class Wheels:
    """Wheels that were read and checked: their files by path, and the modules that can be imported from them."""

    names: tuple[str, ...]
    modules: tuple[str, ...]
    files: Mapping[str, bytes]

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 of all files; the same files have the same one, whatever the wheels are called."""
        listed = [(name, hashlib.sha256(data).hexdigest()) for name, data in sorted(self.files.items())]
        return hashlib.sha256(json.dumps(listed).encode()).hexdigest()


def read_wheels(paths: Iterable[str | os.PathLike[str]]) -> Wheels | None:
    """Read wheels; None when there are none.

    Args:
        paths: Wheels, and folders whose wheels are all taken.

    Raises:
        InvalidRequest: A path is no wheel, or the wheel is damaged, not pure Python, or too large.

    """
    if isinstance(paths, str | bytes | os.PathLike):
        raise InvalidRequest(f"wheels takes a list of files and folders, got {quoted(paths)}; write [{paths!r}]")
    files: dict[str, bytes] = {}
    owner: dict[str, str] = {}
    names, size = [], 0
    for path in _each(paths):
        name = os.path.basename(path)
        _check_name(name)
        names.append(name)
        for member, data in _members(path):
            if member in files and files[member] != data:
                raise InvalidRequest(f"{name} and {owner[member]} both have {member}; leave one of them out")
            files[member], owner[member] = data, name
            size += len(data)
            if len(files) > MOST_FILES or size > MOST_BYTES:
                raise InvalidRequest(
                    f"the wheels up to {name} have more than {MOST_FILES} files or {MOST_BYTES >> 20} MB; give fewer"
                )
    return make_wheels(files, tuple(names)) if names else None


def make_wheels(files: dict[str, bytes], names: tuple[str, ...]) -> Wheels:
    """Return files of pure Python as wheels, by their paths after an installation."""
    for name in files:
        above = name.split("/")[:-1]
        if clash := next((part for n in range(len(above)) if (part := "/".join(above[: n + 1])) in files), None):
            raise InvalidRequest(
                f"the wheels have {quoted(clash)} both as a file and as a folder; leave one of them out"
            )
    return Wheels(names, _modules(files), MappingProxyType(files))


def _each(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    found: list[str] = []
    for given in paths:
        if not isinstance(given, str | os.PathLike) or not os.fspath(given) or "\0" in str(given):
            raise InvalidRequest(f"a wheel is the path of a file or folder, got {quoted(given)}")
        path = os.path.expanduser(os.fspath(given))
        if os.path.isdir(path):
            inside = sorted(name for name in os.listdir(path) if name.endswith(".whl"))
            if not inside:
                raise InvalidRequest(f"the folder {quoted(path)} has no wheels; a wheel's name ends with .whl")
            found += [os.path.join(path, name) for name in inside]
        else:
            found.append(path)
    found = list(dict.fromkeys(found))
    if len(found) > MOST_WHEELS:
        raise InvalidRequest(f"{len(found)} wheels were given; at most {MOST_WHEELS} are taken")
    return found


def _check_name(name: str) -> None:
    parts = _FILE_NAME.match(name)
    if parts is None:
        raise InvalidRequest(f"{quoted(name)} is no wheel; a wheel is called NAME-VERSION-py3-none-any.whl")
    pure = parts["abi"] == "none" and parts["platform"] == "any"
    if not pure or not any(re.match(r"py3(\d+)?\Z", tag) for tag in parts["python"].split(".")):
        raise InvalidRequest(
            f"{name} is built for {parts['python']}-{parts['abi']}-{parts['platform']}, and WebAssembly runs only pure "
            "Python (py3-none-any); numpy and pandas are in the large Python: sandbox-kernel prepare science"
        )


def _members(path: str) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a wheel, as they lie after an installation, within the limits."""
    name = os.path.basename(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise InvalidRequest(f"the wheel {quoted(path)} cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_WHEEL_BYTES:
            raise InvalidRequest(f"{name} is not a plain file of at most {MOST_WHEEL_BYTES >> 20} MB")
        data = file.read(MOST_WHEEL_BYTES + 1)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as wheel:
            listed = wheel.infolist()
            _check_members(name, listed)
            for member in listed:
                target = _target(member.filename)
                if target is not None:
                    yield target, _content(name, wheel, member)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise InvalidRequest(f"{name} is damaged: {error}; download it again") from None


def _check_members(name: str, members: list[zipfile.ZipInfo]) -> None:
    if len(members) > MOST_FILES:
        raise InvalidRequest(f"{name} lists {len(members)} files; at most {MOST_FILES} are taken")
    if sum(member.file_size for member in members) > MOST_BYTES:
        raise InvalidRequest(f"{name} unpacks to more than {MOST_BYTES >> 20} MB; it is too large to be loaded")
    seen = set[str]()
    for member in members:
        inside, mode = member.filename, member.external_attr >> 16
        parts = inside.rstrip("/").split("/")
        long = len(inside) > _MOST_NAME or any(len(part.encode()) > _MOST_PART_BYTES for part in parts)
        if not inside or long or {"", ".", ".."} & set(parts) or re.search(r"[\0-\x1f\\:]", inside):
            raise InvalidRequest(f"{name} has a file called {quoted(inside)}, which would not stay in its folder")
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise InvalidRequest(f"{name} has {quoted(inside)}, which is no plain file (a link, a pipe or a device)")
        if member.flag_bits & _ENCRYPTED or member.compress_type not in _METHODS:
            raise InvalidRequest(f"{name} has {quoted(inside)} encrypted or compressed in a way that wheels do not use")
        if inside in seen:
            raise InvalidRequest(f"{name} has {quoted(inside)} twice")
        if inside.lower().endswith(_NATIVE):
            raise InvalidRequest(f"{name} has native code ({quoted(inside)}), which WebAssembly cannot run")
        seen.add(inside)


def _target(inside: str) -> str | None:
    """Return where a file of a wheel is installed; None for one that is not: folders, scripts, headers."""
    if inside.endswith(("/", ".pth")):
        return None
    first, _, rest = inside.partition("/")
    if not first.endswith(".data"):
        return inside
    kind, _, below = rest.partition("/")
    return below if kind in ("purelib", "platlib") and below else None


def _content(name: str, wheel: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    with wheel.open(member) as file:
        data = file.read(member.file_size + 1)
    if len(data) != member.file_size:
        raise InvalidRequest(f"{name} says that {quoted(member.filename)} has {member.file_size} bytes, and it has not")
    return data


def _modules(files: Iterable[str]) -> tuple[str, ...]:
    """Return the modules at the top: ``six.py`` and ``click/__init__.py``."""
    found = set()
    for name in files:
        first, _, rest = name.partition("/")
        module = first.removesuffix(".py") if not rest and first.endswith(".py") else first
        if ((not rest and first.endswith(".py")) or rest == "__init__.py") and _MODULE.match(module):
            found.add(module)
    return tuple(sorted(found))


MEMORY, LOADED = "memory.img", "loaded.json"
#: Where programs see the files of the wheels.
PLACE = "/wheels"
#: Most bytes of memories and of files in the store; the least recently used go first.
_MOST_BYTES = 1 << 30
_MEMORY_NAME, _SITE_NAME = "memory-", "wheels-"
#: How long the modules of wheels may take to be imported.
_IMPORT_S = 120.0


@dataclass(frozen=True)
class LoadedWheels:
    """The file with the memory in which wheels are imported, and the folder with their files."""

    memory: str
    folder: str

    @property
    def paths(self) -> list[str]:
        """The paths of the host that a jail must see."""
        return [self.memory, self.folder]

    @property
    def preopen(self) -> dict[str, object]:
        """The folder of the files, as a folder of a guest."""
        return {"host": self.folder, "guest": PLACE, "writable": False}


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
    parts = json.dumps([wheels.digest, wheels.modules, image.files[COMPILED], PLACE])
    name = f"{_MEMORY_NAME}{hashlib.sha256(parts.encode()).hexdigest()[:40]}"
    site, memory = store.find(site_name), store.find(name)
    if site is None:
        store.prune(_SITE_NAME, _MOST_BYTES)
        site = store.add(site_name, wheels.files)
    if memory is None:
        store.prune(_MEMORY_NAME, _MOST_BYTES)
        memory = store.add(name, _made(enforcer, wheels, image, site.path, switches))
    store.touch(name)
    store.touch(site_name)
    return LoadedWheels(memory.file(MEMORY), site.path)


def _made(enforcer: str, wheels: Wheels, image: StoreEntry, folder: str, switches: EngineSwitches) -> dict[str, bytes]:
    """Import the modules of the wheels in a jail; returns the files with the memory, and with what failed."""
    fields = {
        "module": image.file(COMPILED),
        "facts": image.file(FACTS),
        "path": PLACE,
        "modules": wheels.modules,
    }
    outs = {"out": MEMORY, "report": LOADED}
    folders = [{"host": folder, "guest": PLACE, "writable": False}]
    try:
        return run_preparation(
            enforcer, "packages", switches, fields, outs, [image.path, folder], folders=folders, timeout_s=_IMPORT_S
        )
    except BackendUnavailable as error:
        listed = ", ".join(wheels.names[:5])
        raise InvalidRequest(
            f"the wheels ({listed}) could not be imported in WebAssembly: {error}; leave out the one that does it"
        ) from None
