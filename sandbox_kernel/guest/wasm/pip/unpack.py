"""Reads one wheel of pure Python and unpacks it. Runs inside the guest.

Everything is checked and decompressed before the first file is written.
"""

import csv
import email.parser
import io
import os
import re
import stat
import zipfile
import zlib
from dataclasses import dataclass
from importlib import metadata

from packaging.utils import canonicalize_name

_MOST_FILES, _MOST_BYTES, _MOST_METADATA = 4000, 64 << 20, 1 << 20
_NATIVE = (".so", ".pyd", ".dll", ".dylib", ".a")


class PackageError(Exception):
    """Raised when a package cannot be installed; says what to do instead. A cell shows it without the frames of pip."""

    def __init_subclass__(cls) -> None:
        cls.__module__ = "builtins"


PackageError.__module__ = "builtins"


@dataclass(frozen=True)
class WheelMetadata:
    """What a wheel says that it needs: other packages, and a version of Python (empty for any)."""

    requires: list[str]
    python: str

    @staticmethod
    def read(text: bytes) -> "WheelMetadata":
        """Read a METADATA file."""
        if len(text) > _MOST_METADATA:
            raise PackageError(f"the metadata of a wheel has {len(text)} bytes; at most {_MOST_METADATA} are read")
        # Only the head: the description behind it can be long.
        head = text.decode("utf-8", "replace").replace("\r\n", "\n").partition("\n\n")[0]
        said = email.parser.HeaderParser().parsestr(head)
        return WheelMetadata([str(each) for each in said.get_all("Requires-Dist") or []], said["Requires-Python"] or "")


@dataclass(frozen=True)
class WheelFile:
    """A wheel that was checked: its files, by their paths after the installation."""

    name: str
    files: dict[str, bytes]
    metadata: WheelMetadata

    @property
    def modules(self) -> list[str]:
        """The names that can be imported from it."""
        tops = {path.partition("/")[0] for path in self.files if path.endswith(".py")}
        return sorted(top.removesuffix(".py") for top in tops)


def read_wheel(file: str, data: bytes, name: str, version: str) -> WheelFile:
    """Check and read a wheel of a package; raises ``PackageError`` for one that is damaged or not what it says."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            _check(file, members)
            files = {
                target: archive.read(member) for member in members if (target := _target(member.filename)) is not None
            }
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise PackageError(f"{file[:200]} is damaged: {str(error)[:200]}") from None
    infos = [path for path in files if re.fullmatch(r"[^/]+\.dist-info/METADATA", path)]
    said = infos[0].partition(".dist-info")[0].rpartition("-") if len(infos) == 1 else ("", "", "")
    if canonicalize_name(said[0]) != name:
        raise PackageError(
            f"{file[:200]} is not a wheel of {name}: it has the metadata of {said[0][:100] or 'nothing'}"
        )
    # Our own list of the files, by which they are removed again.
    info = os.path.dirname(infos[0])
    record = f"{info}/RECORD"
    out = io.StringIO()
    csv.writer(out).writerows([name, "", ""] for name in {**files, record: b"", f"{info}/INSTALLER": b""})
    files[record] = out.getvalue().encode()
    files[f"{info}/INSTALLER"] = b"sandbox-kernel\n"
    return WheelFile(file, files, WheelMetadata.read(files[infos[0]]))


def _check(file: str, members: list[zipfile.ZipInfo]) -> None:
    if len(members) > _MOST_FILES or sum(member.file_size for member in members) > _MOST_BYTES:
        raise PackageError(f"{file[:200]} has more than {_MOST_FILES} files or {_MOST_BYTES >> 20} MB")
    seen = set[str]()
    for member in members:
        inside = member.filename
        parts = inside.rstrip("/").split("/")
        if {"", ".", ".."} & set(parts) or re.search(r"[\0-\x1f\\:]", inside) or len(inside) > 500 or inside in seen:
            raise PackageError(f"{file[:200]} has a file called {inside[:200]!r}, which would not stay in its folder")
        if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR) or member.flag_bits & 1:
            raise PackageError(f"{file[:200]} has {inside[:200]!r}, which is no plain file")
        if inside.lower().endswith(_NATIVE):
            raise PackageError(f"{file[:200]} has native code ({inside[:200]!r}); use the native backend ('process')")
        seen.add(inside)


def _target(inside: str) -> str | None:
    """Return where a file is installed; None for folders, scripts, headers and ``.pth`` files."""
    if inside.endswith(("/", ".pth")):
        return None
    first, _, rest = inside.partition("/")
    if not first.endswith(".data"):
        return inside
    kind, _, below = rest.partition("/")
    return below if kind in ("purelib", "platlib") and below else None


def unpack(wheel: WheelFile, folder: str) -> None:
    """Write the files of a wheel; if one cannot be written, those before it are removed again."""
    written: list[str] = []
    for name, data in wheel.files.items():
        path = os.path.join(folder, name)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                written.append(path)
                file.write(data)
        except OSError as error:
            _remove_files(written, folder)
            raise PackageError(f"{wheel.name[:200]} could not be unpacked: {name[:200]}: {error.strerror}") from None


def remove(found: metadata.Distribution, folder: str) -> None:
    """Remove the files that a package lists as its own."""
    listed = csv.reader((found.read_text("RECORD") or "").splitlines())
    _remove_files([os.path.normpath(os.path.join(folder, row[0])) for row in listed if row], folder)


def _remove_files(paths: list[str], folder: str) -> None:
    """Remove files below a folder, and the folders that are empty then."""
    folders = set[str]()
    for path in paths:
        if not path.startswith(f"{folder}/"):
            continue
        try:
            os.unlink(path)
        except OSError:
            pass
        above = os.path.dirname(path)
        while above != folder:
            folders.add(above)
            above = os.path.dirname(above)
    for place in sorted(folders, key=len, reverse=True):
        try:
            os.rmdir(place)
        except OSError:
            pass  # something else lies there: a cache, or a file of another package
