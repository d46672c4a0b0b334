"""Requests and results: the plain values that pass between the rooms of the house.

They hold no behaviour beyond checking themselves. A request that exists is well-formed: whoever receives one need not
look again. A result says what happened by ``status`` and ``limit``; nobody parses ``stderr`` to find out.
"""

from __future__ import annotations

import re
import signal as signals
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType

from sandbox_kernel.errors import ExecutionFailed, InvalidRequest, MemoryExceeded, SandboxTimeout
from sandbox_kernel.limits import DEFAULT_MEMORY_MB, Limits, check_memory_mb, check_timeout, quoted
from sandbox_kernel.receipt import MIME, measurements, mime_bundle

#: Source beyond this is refused: no cell is that long, and compilers are no place to find out.
MAX_CODE_BYTES = 16 << 20
#: A run of opening brackets this long has crashed parsers of several languages; no program needs it.
MAX_BRACKET_RUN = 20_000

#: The longest argument or variable that Linux hands to a program, and what all of them may take here: beyond either no
#: program can be started, and what a program starts itself gets its variables too.
MAX_ARGUMENT_BYTES = 128 << 10
MAX_ARGUMENTS_BYTES = 1 << 20

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_BRACKET_RUN = re.compile(rf"[(\[{{]{{{MAX_BRACKET_RUN}}}")
#: Names by which a dynamic loader or libc takes code or configuration from the environment.
LOADER_NAMES = re.compile(r"(LD_|DYLD_|GCONV_PATH\Z|GLIBC_TUNABLES\Z|LOCPATH\Z|NLSPATH\Z|MALLOC_)")

_ALIASES = {
    "py": "python", "python3": "python", "ipython": "python",
    "js": "javascript", "node": "javascript", "nodejs": "javascript",
    "ts": "typescript",
    "rs": "rust",
    "c++": "cpp", "cxx": "cpp", "cc": "cpp",
    "sh": "command", "bash": "command", "shell": "command", "cmd": "command",
    "wat": "wasm", "webassembly": "wasm",
    "rb": "ruby", "pl": "perl", "sqlite": "sql", "sqlite3": "sql", "golang": "go",
}  # fmt: skip


class Language(StrEnum):
    """What a cell may be written in. Whether this host can run it is for ``capabilities()`` to say."""

    PYTHON = "python"
    JAVASCRIPT = "javascript"
    TYPESCRIPT = "typescript"
    RUST = "rust"
    C = "c"
    CPP = "cpp"
    ZIG = "zig"
    WASM = "wasm"
    COMMAND = "command"
    RUBY = "ruby"
    LUA = "lua"
    GO = "go"
    R = "r"
    PERL = "perl"
    PHP = "php"
    SQL = "sql"

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Every word that ``parse`` understands."""
        return (*cls, *_ALIASES)

    @classmethod
    def parse(cls, name: object) -> Language:
        """Turn what a person wrote into a language; unknown names get the list of the known ones."""
        if isinstance(name, cls):
            return name
        if not isinstance(name, str):
            raise InvalidRequest(f"language must be a string, got {quoted(name)}; {known_languages()}")
        key = name.strip().lower()
        try:
            return cls(_ALIASES.get(key, key))
        except ValueError:
            raise InvalidRequest(f"unsupported language {quoted(name)}; {known_languages()}") from None


def known_languages() -> str:
    """The sentence that ends every complaint about a language."""
    aliases = " ".join(sorted(_ALIASES))
    return f"expected one of: {', '.join(Language)} (or an alias: {aliases})"


class Status(StrEnum):
    """How a run ended. ``failed`` is a program that said no; the others name who stopped it."""

    OK = "ok"
    FAILED = "failed"
    COMPILE_FAILED = "compile_failed"
    TIMEOUT = "timeout"
    CPU_LIMIT = "cpu_limit"
    MEMORY_EXCEEDED = "memory_exceeded"
    FUEL_EXHAUSTED = "fuel_exhausted"
    KILLED = "killed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, kw_only=True)
class Violation:
    """Something the program tried and the policy refused, with the line that would allow it."""

    rule: str
    subject: str
    reason: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class FsChange:
    """One difference of the work folder: ``kind`` is created, modified, deleted or renamed."""

    path: str
    kind: str
    type: str = "file"
    size: int = 0
    renamed_from: str | None = None


@dataclass(frozen=True, kw_only=True)
class Display:
    """A rich output: a MIME bundle, sanitised by the session that it comes from, and its metadata."""

    data: Mapping[str, object]
    metadata: Mapping[str, object] = field(default_factory=dict)
    kind: str = "display"


@dataclass(frozen=True, kw_only=True)
class CellError:
    """An exception of the user's own code, as a session saw it."""

    ename: str
    evalue: str
    traceback: tuple[str, ...] = ()


def check_env(env: Mapping[str, str], *, loader_names_allowed: bool = False) -> None:
    """Refuse names and values that no program can receive, and names by which a loader takes code."""
    for name, value in env.items():
        if not isinstance(name, str) or not _ENV_NAME.match(name):
            raise InvalidRequest(
                f"environment name {quoted(name)} is not usable; use letters, digits and _, not starting with a digit"
            )
        if not isinstance(value, str):
            raise InvalidRequest(f"environment value of {name} must be a string, got {quoted(value)}")
        _check_text(value, f"environment value of {name}")
        if LOADER_NAMES.match(name) and not loader_names_allowed:
            raise InvalidRequest(
                f"environment name {name} tells the loader to run other code; "
                f"if that is meant, allow it in the policy: policy.with_env({name!r}, …)"
            )


def check_file_name(name: object, what: str = "file name") -> str:
    """Return a relative path that stays beneath its root, or say what is wrong with it."""
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"{what} must be a non-empty relative path, got {quoted(name)}")
    _check_text(name, what)
    parts = name.split("/")
    if name.startswith("/") or "\\" in name or re.match(r"[A-Za-z]:", name):
        raise InvalidRequest(f"{what} {name!r} must be relative to the work folder, with / between folders")
    if any(part in ("", ".", "..") for part in parts):
        raise InvalidRequest(f"{what} {name!r} leaves or re-enters the work folder; give a plain path like data/a.csv")
    if any(len(part.encode()) > 255 for part in parts) or len(name.encode()) > 4000:
        raise InvalidRequest(f"{what} {name[:60]!r}… is longer than a file system takes")
    return name


def _check_text(value: str, what: str) -> None:
    if "\0" in value:
        raise InvalidRequest(f"{what} holds a NUL character at position {value.index(chr(0))}; remove it")
    _check_encodable(value, what)


def _check_encodable(value: str, what: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"{what} holds a lone surrogate at position {error.start}, which no encoding can carry; remove it"
        ) from None


def _check_room(env: Mapping[str, str], args: Sequence[str]) -> None:
    """Refuse what no operating system hands to a program; a file or standard input takes it."""
    sizes = {f"environment value of {name}": len(name) + len(value.encode()) + 2 for name, value in env.items()}
    sizes |= {f"argument {place}": len(arg.encode()) + 1 for place, arg in enumerate(args, 1)}
    for what, size in sizes.items():
        if size > MAX_ARGUMENT_BYTES:
            raise InvalidRequest(
                f"{what} has {size} bytes; a program can be given at most {MAX_ARGUMENT_BYTES}: "
                "give it as a file (files={…}) or as stdin"
            )
    # Each has a pointer of 8 bytes beside it.
    total = sum(sizes.values()) + 8 * len(sizes)
    if total > MAX_ARGUMENTS_BYTES:
        raise InvalidRequest(
            f"arguments and environment take {total} bytes together; a program can be given at most "
            f"{MAX_ARGUMENTS_BYTES}: give them as a file (files={{…}}) or as stdin"
        )


def _check_no_file_is_a_folder(names: Iterable[str]) -> None:
    files = set(names)
    for name in files:
        for end in (place for place, letter in enumerate(name) if letter == "/"):
            if name[:end] in files:
                raise InvalidRequest(
                    f"files name {name[:end]!r} as a file and, with {name!r}, as a folder; rename one of them"
                )


def _check_mapping(what: str, value: object) -> None:
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{what} must be a mapping of names, got {quoted(value)}")


def _check_code(language: Language, code: object) -> None:
    if isinstance(code, bytes):
        if not code:
            raise InvalidRequest("code is empty; give the program to run")
        if len(code) > MAX_CODE_BYTES:
            raise InvalidRequest(f"code has {len(code)} bytes; at most {MAX_CODE_BYTES} are taken")
        if language is not Language.WASM:
            raise InvalidRequest(f"code for {language} must be text, got bytes; decode it first")
        return
    if not isinstance(code, str):
        raise InvalidRequest(f"code must be text (or bytes for wasm), got {type(code).__name__}")
    if len(code) > MAX_CODE_BYTES:
        raise InvalidRequest(f"code has {len(code)} characters; at most {MAX_CODE_BYTES} are taken")
    if not code.strip():
        raise InvalidRequest("code is empty; give the program to run")
    _check_text(code, "code")
    if len(code) > MAX_CODE_BYTES // 4 and len(code.encode()) > MAX_CODE_BYTES:
        raise InvalidRequest(f"code has {len(code.encode())} bytes; at most {MAX_CODE_BYTES} are taken")
    if _BRACKET_RUN.search(code):
        raise InvalidRequest(
            f"code opens more than {MAX_BRACKET_RUN} brackets in a row; no parser is asked to follow that"
        )


@dataclass(frozen=True, kw_only=True)
class ExecRequest:
    """One program to run once. There is deliberately no default for ``timeout``."""

    language: Language
    code: str | bytes
    timeout: float
    stdin: str | bytes | None = None
    memory_limit_mb: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    args: Sequence[str] = ()
    files: Mapping[str, bytes | str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "language", Language.parse(self.language))
        put(self, "timeout", check_timeout(self.timeout))
        if self.memory_limit_mb is not None:
            check_memory_mb(self.memory_limit_mb)
        _check_code(self.language, self.code)
        if self.stdin is not None and not isinstance(self.stdin, str | bytes):
            raise InvalidRequest(f"stdin must be text or bytes, got {type(self.stdin).__name__}")
        if isinstance(self.stdin, str):
            _check_encodable(self.stdin, "stdin")
        _check_mapping("env", self.env)
        check_env(self.env)
        put(self, "env", MappingProxyType(dict(self.env)))
        if isinstance(self.args, str | bytes) or not isinstance(self.args, Sequence):
            raise InvalidRequest(f"args must be a list of strings, got {quoted(self.args)}; wrap it in a list")
        for arg in self.args:
            if not isinstance(arg, str):
                raise InvalidRequest(f"args must be strings, got {quoted(arg)}")
            _check_text(arg, "argument")
        put(self, "args", tuple(self.args))
        _check_room(self.env, self.args)
        _check_mapping("files", self.files)
        for name, content in self.files.items():
            check_file_name(name)
            if not isinstance(content, str | bytes):
                raise InvalidRequest(f"content of file {name!r} must be text or bytes, got {type(content).__name__}")
            if isinstance(content, str):
                _check_encodable(content, f"content of file {name!r}")
        _check_no_file_is_a_folder(self.files)
        put(self, "files", MappingProxyType(dict(self.files)))
        if not isinstance(self.limits, Limits):
            raise InvalidRequest(f"limits must be a Limits(...), got {quoted(self.limits)}")

    @property
    def memory_mb(self) -> int:
        """The memory limit in force: the caller's, or the safe default."""
        return self.memory_limit_mb if self.memory_limit_mb is not None else DEFAULT_MEMORY_MB

    @property
    def source(self) -> bytes:
        """The program as bytes, however it was given."""
        return self.code.encode() if isinstance(self.code, str) else self.code

    @property
    def stdin_bytes(self) -> bytes | None:
        """Standard input as bytes; None means that there is none (end of file at once)."""
        return self.stdin.encode() if isinstance(self.stdin, str) else self.stdin

    def __getstate__(self) -> dict[str, object]:
        # A mapping proxy cannot be pickled; plain dictionaries go over and are wrapped again.
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        state["env"], state["files"] = dict(self.env), dict(self.files)
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, MappingProxyType(value) if isinstance(value, dict) else value)


@dataclass(frozen=True, kw_only=True)
class ExecResult:
    """What one run did: all output so far whatever happened, and who or what ended it."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    duration: float = 0.0
    status: Status = Status.OK
    signal: int | None = None
    limit: str | None = None
    violations: tuple[Violation, ...] = ()
    compile_duration: float | None = None
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    peak_memory_bytes: int | None = None
    cpu_seconds: float | None = None
    fuel_used: int | None = None
    changes: tuple[FsChange, ...] = ()
    displays: tuple[Display, ...] = ()
    error: CellError | None = None
    rolled_back: bool = False
    language: str = ""
    backend: str = ""
    isolation: str = ""
    timeout: float | None = None
    memory_limit_mb: int | None = None
    notes: tuple[str, ...] = ()
    #: Why this backend, when nobody had named one; empty when somebody had.
    chosen: str = ""

    @property
    def ok(self) -> bool:
        """Whether the program ended by itself and said that all was well."""
        return self.status is Status.OK

    def raise_for_status(self) -> ExecResult:
        """Return self when ok; else raise the typed error that carries this result."""
        if self.ok:
            return self
        if self.status is Status.TIMEOUT:
            raise SandboxTimeout(self.timeout or 0.0, self)
        if self.status is Status.MEMORY_EXCEEDED:
            raise MemoryExceeded(self.memory_limit_mb or 0, self)
        raise ExecutionFailed(f"execution failed: {describe_end(self)}", self)

    def to_dict(self) -> dict[str, object]:
        """Everything as JSON-safe values (bytes in displays never occur: sessions send text)."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)} | {"ok": self.ok}

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, object], dict[str, object]]:
        """Data, the same at every run, and metadata with what was measured; see ``receipt``."""
        return mime_bundle(self, describe_end(self)), {MIME: measurements(self)}


def _plain(value: object) -> object:
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, Violation | FsChange | Display | CellError):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value


def describe_end(result: ExecResult) -> str:
    """One stable sentence about how a run ended: limits, never measured values."""
    match result.status:
        case Status.OK:
            return "ok" if result.limit is None else f"ok, after reaching the {result.limit} limit"
        case Status.TIMEOUT:
            return f"time limit of {result.timeout:g} s exceeded" if result.timeout else "time limit exceeded"
        case Status.MEMORY_EXCEEDED:
            return f"memory limit of {result.memory_limit_mb} MB exceeded"
        case Status.CPU_LIMIT:
            return "CPU time limit exceeded"
        case Status.FUEL_EXHAUSTED:
            return "fuel limit exhausted"
        case Status.INTERRUPTED:
            return "interrupted"
        case Status.COMPILE_FAILED:
            return "compilation failed"
    if result.signal is not None:
        suffix = f" at the {result.limit} limit" if result.limit else ""
        if result.status is Status.FAILED:
            # Nobody killed it: an assertion or an uncaught exception ends programs of C, C++ and Rust this way.
            return f"aborted ({signal_name(result.signal)}){suffix}"
        return f"killed by signal {result.signal} ({signal_name(result.signal)}){suffix}"
    if result.status is Status.KILLED and result.exit_code is None:
        return f"killed at the {result.limit} limit" if result.limit else "killed"
    if result.limit is not None:
        return f"exit code {result.exit_code}, after reaching the {result.limit} limit"
    return f"exit code {result.exit_code}"


def signal_name(number: int) -> str:
    """SIGSEGV rather than 11; real-time signals have no name and keep their number."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
