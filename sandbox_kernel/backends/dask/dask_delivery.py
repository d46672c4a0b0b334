"""The answer of a Dask worker: plain bytes, which are checked here like untrusted input.

    length of the header, header (JSON), standard output, standard error, files one after another

Messages of Dask itself are pickles, so each member of a cluster can run code on every other member, this host included:
scheduler and workers are trusted. Programs that run there are not, and a worker may have another version, be broken or
be cut off. An answer must therefore have known fields of known types and name only files that changed. Time and memory
limits in the result are those of the request.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import asdict

from sandbox_kernel import errors
from sandbox_kernel.backends.base import BackendCapabilities, EnforcedLimits, Enforcement
from sandbox_kernel.errors import BackendUnavailable, SandboxError
from sandbox_kernel.ground.wire import decode, frame
from sandbox_kernel.languages.recipe import Availability
from sandbox_kernel.model import ExecRequest, ExecResult, FsChange, Language, Limit, Note, NoteKind, Status, Violation
from sandbox_kernel.workspace.tree.walk import FILE, Entry

#: Most bytes of files that a run sends back. The rest stays on the worker, and the result says so.
MAX_FILES_BYTES = 64 << 20
_MAX_HEADER = 16 << 20
#: Error classes with one argument (the message), and those with the enforcer before it.
_PLAIN = (
    errors.InvalidRequest, errors.PolicyViolation, errors.PathTraversal, errors.CommandNotFound,
    errors.NetworkingDisabled, errors.SessionError, errors.BackendUnavailable,
)  # fmt: skip
_NAMED = (errors.EnforcerFailed, errors.EnforcerUnavailable)

Item = TypeVar("Item")
_Text = Annotated[str, Meta(max_length=100_000)]
_Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
_Seconds = Annotated[float, Meta(ge=0, lt=1e9)]
#: A path inside a folder: no part of it is empty, ``.`` or ``..``.
_Path = Annotated[str, Meta(max_length=100_000, pattern=r"^(?!\.\.?(/|$))[^/\x00]+(/(?!\.\.?(/|$))[^/\x00]+)*\Z")]


@dataclass(frozen=True)
class Delivery:
    """The result of a run and its files. ``pieces`` is the number of output events that were sent before.

    ``changed`` is what a program changed in its copy of the user's folder; ``files`` is empty then.
    """

    result: ExecResult
    files: Mapping[str, bytes]
    pieces: int
    changed: tuple[Entry, ...] = ()


class _Change(Struct, frozen=True):
    path: _Text
    kind: Literal["created", "modified", "deleted", "renamed"]
    type: Literal["file", "directory", "symlink", "fifo", "socket", "device"]
    size: _Count
    renamed_from: _Text | None


class _Violation(Struct, frozen=True):
    rule: _Text
    subject: _Text
    reason: _Text
    remedy: _Text


class _Result(Struct, frozen=True):
    """The fields of a result that a worker tells; the others are those of the request."""

    exit_code: _Count | None
    duration: _Seconds
    status: Status
    signal: _Count | None
    limit: Limit | None
    violations: tuple[_Violation, ...]
    compile_duration: _Seconds | None
    stdout_bytes: _Count
    stderr_bytes: _Count
    stdout_truncated: bool
    stderr_truncated: bool
    peak_memory_bytes: _Count | None
    cpu_seconds: _Seconds | None
    changes: tuple[_Change, ...]
    isolation: Literal["process", "process+sandbox"]
    notes: tuple[_Text, ...]


class _Entry(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a program left in its copy of the user's folder, without its content."""

    path: _Path
    type: Literal["file", "directory", "symlink", "gone"]
    mode: Annotated[int, Meta(ge=0, le=0o777)]
    target: _Text | None
    size: _Count

    def __post_init__(self) -> None:
        if (self.type != "file" and self.size) or (self.target is not None) != (self.type == "symlink"):
            raise ValueError("a change that does not fit its kind")


class _Delivered(Struct, frozen=True):
    result: _Result
    note_kinds: tuple[NoteKind, ...]
    texts: tuple[_Count, _Count]
    files: tuple[tuple[_Text, _Count], ...]
    pieces: _Count
    changed: tuple[_Entry, ...]


class _Failed(Struct, frozen=True):
    error: _Text
    told: tuple[_Text, ...]


class _Capabilities(Struct, frozen=True):
    isolation_class: _Text
    supported_languages: tuple[Language, ...]
    limits: dict[_Text, tuple[bool, _Text, _Text]]
    languages: dict[Language, tuple[bool, _Text, _Text, _Text, _Text]]


def encode_delivery(delivery: Delivery) -> bytes:
    """Encode a delivery. Called on the worker."""
    result = delivery.result
    texts = [text.encode("utf-8", "replace") for text in (result.stdout, result.stderr)]
    header = {
        "result": {name: value for name, value in result.to_dict().items() if name in _Result.__struct_fields__},
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
    return _checked(data, _Delivered, lambda header, rest: _delivery(header, rest, request))


def decode_capabilities(data: object) -> BackendCapabilities:
    """Decode and check the capabilities of a worker. Raises the error that the worker sent instead."""
    return _checked(data, _Capabilities, lambda header, _: _capabilities(header))


def _packed(header: Mapping[str, object]) -> bytes:
    return frame(json.dumps(header).encode())


_Header = TypeVar("_Header", _Delivered, _Capabilities)


def _checked(data: object, declared: type[_Header], read: Callable[[_Header, bytes], Item]) -> Item:
    try:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"a {type(data).__name__}")
        whole = bytes(data)
        size = int.from_bytes(whole[:4], "big")
        text = whole[4 : 4 + size]
        if size > _MAX_HEADER or len(whole) < 4 + size:
            raise ValueError("its size")
        if not text.startswith(b'{"error"'):
            return read(decode(text, declared), whole[4 + size :])
        error = _error(decode(text, _Failed))
    except (ValueError, TypeError, KeyError) as problem:
        raise BackendUnavailable(
            f"a worker of the Dask cluster sent an invalid answer ({problem}); "
            "install the same sandbox-kernel on the workers as here"
        ) from None
    raise error


def _error(found: _Failed) -> SandboxError:
    for kind in _PLAIN:
        if found.error == kind.__name__ and len(found.told) == 1:
            return kind(found.told[0])
    for named in _NAMED:
        if found.error == named.__name__ and len(found.told) == 2:
            return named(found.told[0], found.told[1])
    raise ValueError("an unknown error")


def _delivery(header: _Delivered, rest: bytes, request: ExecRequest) -> Delivery:
    held = [*(size for _, size in header.files), *(entry.size for entry in header.changed)]
    if sum(header.texts) + sum(held) != len(rest):
        raise ValueError("the sizes of its parts")
    if sum(held) > MAX_FILES_BYTES:
        raise ValueError("the size of its files")
    parts, at = [], 0
    for size in (*header.texts, *held):
        parts.append(rest[at : at + size])
        at += size
    stdout, stderr = (part.decode("utf-8", "replace") for part in parts[:2])
    changes = header.result.changes
    changed = {change.path for change in changes if change.type == FILE and change.kind != "deleted"}
    files = dict(zip((path for path, _ in header.files), parts[2 : 2 + len(header.files)], strict=True))
    if not files.keys() <= changed:
        raise ValueError("files that did not change")
    contents = zip(header.changed, parts[2 + len(header.files) :], strict=True)
    left = tuple(Entry(one.path, one.type, mode=one.mode, target=one.target, data=data) for one, data in contents)
    result = _result(header, request)
    return Delivery(replace(result, stdout=stdout, stderr=stderr), files, header.pieces, left)


def _result(header: _Delivered, request: ExecRequest) -> ExecResult:
    found = asdict(header.result)
    kinds = zip(header.result.notes, header.note_kinds, strict=True)
    own = {
        "violations": tuple(Violation(**asdict(each)) for each in header.result.violations),
        "changes": tuple(FsChange(**asdict(each)) for each in header.result.changes),
        "notes": tuple(Note(text, kind) for text, kind in kinds),
    }
    return ExecResult(
        **(found | own),
        language=str(request.language),
        backend="dask",
        timeout=request.timeout,
        memory_limit_mb=request.memory_mb,
    )


def _capabilities(found: _Capabilities) -> BackendCapabilities:
    return BackendCapabilities(
        supported_languages=found.supported_languages,
        isolation_class=found.isolation_class,
        enforced_limits=EnforcedLimits(**{name: Enforcement(*line) for name, line in found.limits.items()}),
        languages={
            name: Availability(available=available, version=version, origin=origin, reason=reason, remedy=remedy)
            for name, (available, version, origin, reason, remedy) in found.languages.items()
        },
    )
