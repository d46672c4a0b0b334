"""The answer of a Dask worker: plain bytes, which are checked here like untrusted input.

    length of the header, header (JSON), standard output, standard error, files one after another

Messages of Dask itself are pickles, so each member of a cluster can run code on every other member, this host included:
scheduler and workers are trusted. Programs that run there are not, and a worker may have another version, be broken or
be cut off. An answer must therefore have known fields of known types and name only files that changed. Time and memory
limits in the result are those of the request.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from sandbox_kernel import errors
from sandbox_kernel.backends.base import BackendCapabilities, EnforcedLimits, Enforcement
from sandbox_kernel.errors import BackendUnavailable, SandboxError
from sandbox_kernel.ground.wire import parse_json
from sandbox_kernel.languages.recipe import Availability
from sandbox_kernel.model import ExecRequest, ExecResult, FsChange, Language, Limit, Note, NoteKind, Status, Violation
from sandbox_kernel.workspace.tree.walk import DEVICE, DIRECTORY, FIFO, FILE, GONE, SOCKET, SYMLINK, Entry

#: Most bytes of files that a run sends back. The rest stays on the worker, and the result says so.
MAX_FILES_BYTES = 64 << 20
_MAX_HEADER, _MAX_TEXT = 16 << 20, 100_000
_LENGTH = struct.Struct(">I")
_KINDS = ("created", "modified", "deleted", "renamed")
_TYPES = (FILE, DIRECTORY, SYMLINK, FIFO, SOCKET, DEVICE)
#: Error classes with one argument (the message), and those with the enforcer before it.
_PLAIN = (
    errors.InvalidRequest, errors.PolicyViolation, errors.PathTraversal, errors.CommandNotFound,
    errors.NetworkingDisabled, errors.SessionError, errors.BackendUnavailable,
)  # fmt: skip
_NAMED = (errors.EnforcerFailed, errors.EnforcerUnavailable)

Fields = Mapping[str, object]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Delivery:
    """The result of a run and its files. ``pieces`` is the number of output events that were sent before.

    ``changed`` is what a program changed in its copy of the user's folder; ``files`` is empty then.
    """

    result: ExecResult
    files: Mapping[str, bytes]
    pieces: int
    changed: tuple[Entry, ...] = ()


def encode_delivery(delivery: Delivery) -> bytes:
    """Encode a delivery. Called on the worker."""
    result = delivery.result
    texts = [text.encode("utf-8", "replace") for text in (result.stdout, result.stderr)]
    header = {
        "result": replace(result, stdout="", stderr="").to_dict(),
        "note_kinds": [str(note.kind) for note in result.notes],
        "texts": [len(text) for text in texts],
        "files": [[path, len(data)] for path, data in delivery.files.items()],
        "pieces": delivery.pieces,
        "changed": [[one.path, one.type, one.mode, one.target, len(one.data or b"")] for one in delivery.changed],
    }
    contents = (*delivery.files.values(), *(one.data or b"" for one in delivery.changed))
    return b"".join([_packed(header), *texts, *contents])


def encode_error(error: SandboxError) -> bytes:
    """Encode an error of ``sandbox_kernel.errors``. Called on the worker."""
    for kind in (*_PLAIN, *_NAMED):
        if isinstance(error, kind):
            told = [error.enforcer, error.message] if isinstance(error, _NAMED) else [str(error)]
            return _packed({"error": kind.__name__, "told": told})
    return _packed({"error": "BackendUnavailable", "told": [str(error)]})


def encode_capabilities(found: BackendCapabilities) -> bytes:
    """Encode the capabilities of the worker's machine. Called on the worker."""
    limits = {name: [line.enforced, line.mechanism, line.evidence] for name, line in found.enforced_limits.items()}
    languages = {
        str(language): [one.available, one.version, one.origin, one.reason, one.remedy]
        for language, one in found.languages.items()
    }
    return _packed({
        "isolation_class": found.isolation_class,
        "supported_languages": [str(language) for language in found.supported_languages],
        "limits": limits,
        "languages": languages,
    })  # fmt: skip


def decode_delivery(data: object, request: ExecRequest) -> Delivery:
    """Decode and check the delivery for a request. Raises the error that the worker sent instead."""
    return _checked(data, lambda header, rest: _delivery(header, rest, request))


def decode_capabilities(data: object) -> BackendCapabilities:
    """Decode and check the capabilities of a worker. Raises the error that the worker sent instead."""
    return _checked(data, lambda header, _: _capabilities(header))


def _packed(header: Fields) -> bytes:
    text = json.dumps(header).encode()
    return _LENGTH.pack(len(text)) + text


def _checked(data: object, read: Callable[[Fields, bytes], Item]) -> Item:
    try:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"a {type(data).__name__}")
        whole = bytes(data)
        (size,) = _LENGTH.unpack(whole[: _LENGTH.size])
        text = whole[_LENGTH.size : _LENGTH.size + size]
        if size > _MAX_HEADER or len(text) != size:
            raise ValueError("its size")
        header = _table(parse_json(text))
        error = _error(header) if "error" in header else None
        if error is None:
            return read(header, whole[_LENGTH.size + size :])
    except (ValueError, TypeError, KeyError, RecursionError, struct.error) as problem:
        raise BackendUnavailable(
            f"a worker of the Dask cluster sent an invalid answer ({problem}); "
            "install the same sandbox-kernel on the workers as here"
        ) from None
    raise error


def _error(header: Fields) -> SandboxError:
    told = [_text(item) for item in _list(header["told"])]
    for kind in _PLAIN:
        if header["error"] == kind.__name__ and len(told) == 1:
            return kind(told[0])
    for named in _NAMED:
        if header["error"] == named.__name__ and len(told) == 2:
            return named(told[0], told[1])
    raise ValueError("an unknown error")


def _delivery(header: Fields, rest: bytes, request: ExecRequest) -> Delivery:
    sizes = [_whole(size) for size in _list(header["texts"])]
    named = [(_text(path), _whole(size)) for path, size in map(_list, _list(header["files"]))]
    touched = [_touched(_list(one)) for one in _list(header["changed"])]
    held = [*(size for _, size in named), *(size for _, size in touched)]
    if len(sizes) != 2 or sum(sizes) + sum(held) != len(rest):
        raise ValueError("the sizes of its parts")
    if sum(held) > MAX_FILES_BYTES:
        raise ValueError("the size of its files")
    parts, at = [], 0
    for size in (*sizes, *held):
        parts.append(rest[at : at + size])
        at += size
    stdout, stderr = (part.decode("utf-8", "replace") for part in parts[:2])
    result = _result(_table(header["result"]), request, _list(header["note_kinds"]))
    changed = {change.path for change in result.changes if change.type == FILE and change.kind != "deleted"}
    files = dict(zip((path for path, _ in named), parts[2 : 2 + len(named)], strict=True))
    if not files.keys() <= changed:
        raise ValueError("files that did not change")
    contents = zip(touched, parts[2 + len(named) :], strict=True)
    left = tuple(entry._replace(data=data) for (entry, _), data in contents)
    return Delivery(replace(result, stdout=stdout, stderr=stderr), files, _whole(header["pieces"]), left)


def _touched(found: list[object]) -> tuple[Entry, int]:
    """Return an entry without its content, and the size of that."""
    path, what, mode, target, size = found
    entry = Entry(_text(path), _text(what), mode=_whole(mode), target=_maybe(_text, target))
    if entry.type not in (FILE, DIRECTORY, SYMLINK, GONE) or entry.mode > 0o777:
        raise ValueError("a change of an unknown kind")
    if (not entry.is_file and size != 0) or (entry.target is not None) != (entry.type == SYMLINK):
        raise ValueError("a change that does not fit its kind")
    if "\0" in entry.path or any(name in ("", ".", "..") for name in entry.path.split("/")):
        raise ValueError("a path that is none")
    return entry, _whole(size)


def _result(found: Fields, request: ExecRequest, note_kinds: list[object]) -> ExecResult:
    told = zip(_list(found["notes"]), note_kinds, strict=True)
    notes = [Note(_text(text), NoteKind(_text(kind))) for text, kind in told]
    isolation = _text(found["isolation"])
    if isolation not in ("process", "process+sandbox"):
        raise ValueError("its isolation")
    return ExecResult(
        exit_code=_maybe(_whole, found["exit_code"]),
        duration=_number(found["duration"]),
        status=Status(_text(found["status"])),
        signal=_maybe(_whole, found["signal"]),
        limit=_maybe(lambda name: Limit(_text(name)), found["limit"]),
        violations=tuple(_violation(_table(item)) for item in _list(found["violations"])),
        compile_duration=_maybe(_number, found["compile_duration"]),
        stdout_bytes=_whole(found["stdout_bytes"]),
        stderr_bytes=_whole(found["stderr_bytes"]),
        stdout_truncated=_flag(found["stdout_truncated"]),
        stderr_truncated=_flag(found["stderr_truncated"]),
        peak_memory_bytes=_maybe(_whole, found["peak_memory_bytes"]),
        cpu_seconds=_maybe(_number, found["cpu_seconds"]),
        changes=tuple(_change(_table(item)) for item in _list(found["changes"])),
        language=str(request.language),
        backend="dask",
        isolation=isolation,
        timeout=request.timeout,
        memory_limit_mb=request.memory_mb,
        notes=tuple(notes),
    )


def _violation(found: Fields) -> Violation:
    return Violation(**{field.name: _text(found[field.name]) for field in fields(Violation)})


def _change(found: Fields) -> FsChange:
    kind, what = _text(found["kind"]), _text(found["type"])
    if kind not in _KINDS or what not in _TYPES:
        raise ValueError("a change of an unknown kind")
    before = _maybe(_text, found["renamed_from"])
    return FsChange(path=_text(found["path"]), kind=kind, type=what, size=_whole(found["size"]), renamed_from=before)


def _capabilities(found: Fields) -> BackendCapabilities:
    lines = {name: _list(line) for name, line in _table(found["limits"]).items()}
    limits = {name: Enforcement(_flag(kept), _text(how), _text(why)) for name, (kept, how, why) in lines.items()}
    known = {Language(name): _list(one) for name, one in _table(found["languages"]).items()}
    return BackendCapabilities(
        supported_languages=tuple(Language(_text(name)) for name in _list(found["supported_languages"])),
        isolation_class=_text(found["isolation_class"]),
        enforced_limits=EnforcedLimits(**limits),
        languages={name: _availability(one) for name, one in known.items()},
    )


def _availability(found: list[object]) -> Availability:
    available, version, origin, reason, remedy = found
    return Availability(
        available=_flag(available),
        version=_text(version),
        origin=_text(origin),
        reason=_text(reason),
        remedy=_text(remedy),
    )


def _maybe(read: Callable[[object], Item], value: object) -> Item | None:
    return None if value is None else read(value)


def _table(value: object) -> Fields:
    if not isinstance(value, dict):
        raise TypeError("no table where one belongs")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError("no list where one belongs")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise TypeError("no text where one belongs")
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError("no yes or no where one belongs")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise TypeError("no count where one belongs")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise TypeError("no time where one belongs")
    return float(value)
