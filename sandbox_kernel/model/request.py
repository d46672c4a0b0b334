"""One program to run once, and what its caller hears meanwhile.

The constructor of a request checks every field, so code that receives a request need not.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields
from enum import StrEnum
from types import MappingProxyType

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import DEFAULT_MEMORY_MB, Limits, check_memory_mb, check_timeout, quoted
from sandbox_kernel.util.values import dataclass

#: Folders of the sandbox: a mount over one of them would remove a wall or hide the work folder.
_OWN_PLACES = (
    "/", "/proc", "/dev", "/sys", "/box", "/tmp", "/usr", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/run", "/cell",
    "/guest", "/here",
)  # fmt: skip
#: No mount may lie inside these either: kernel files, devices and our own programs.
_CLOSED_PLACES = ("/proc/", "/dev/", "/cell/", "/guest/", "/here/")


def is_own_place(target: str) -> bool:
    """Whether the path is a folder of the sandbox, where no grant may lie."""
    return target in _OWN_PLACES or target.startswith(_CLOSED_PLACES)


_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
#: Environment variables that make a dynamic loader or libc load code or configuration.
LOADER_NAMES = re.compile(r"(LD_|DYLD_|GCONV_PATH\Z|GLIBC_TUNABLES\Z|LOCPATH\Z|NLSPATH\Z|MALLOC_)")


def check_env(env: Mapping[str, str], *, loader_names_allowed: bool = False) -> None:
    """Raise ``InvalidRequest`` for a variable that no program can receive, or that only a policy may set."""
    for name, value in env.items():
        if not isinstance(name, str) or not _ENV_NAME.match(name):
            raise InvalidRequest(
                f"environment name {quoted(name)} is not usable; use letters, digits and _, not starting with a digit"
            )
        if not isinstance(value, str):
            raise InvalidRequest(f"environment value of {name} must be a string, got {quoted(value)}")
        check_text(value, f"environment value of {name}")
        if LOADER_NAMES.match(name) and not loader_names_allowed:
            raise InvalidRequest(
                f"environment name {name} tells the loader to run other code; "
                f"if that is meant, allow it in the policy: policy.with_env({name!r}, …)"
            )


#: Deeper folders are refused, because the host does not read them after the run (``workspace/tree/walk.py``).
MAX_LEVELS = 256


def check_file_name(name: object, what: str = "file name") -> str:
    """Return the name if it is a relative path that stays inside the work folder, else raise ``InvalidRequest``."""
    if not isinstance(name, str) or not name:
        raise InvalidRequest(f"{what} must be a non-empty relative path, got {quoted(name)}")
    check_text(name, what)
    parts = name.split("/")
    if name.startswith("/") or "\\" in name or re.match(r"[A-Za-z]:", name):
        raise InvalidRequest(f"{what} {name!r} must be relative to the work folder, with / between folders")
    if any(part in ("", ".", "..") for part in parts):
        raise InvalidRequest(f"{what} {name!r} leaves or re-enters the work folder; give a plain path like data/a.csv")
    if any(len(part.encode()) > 255 for part in parts) or len(name.encode()) > 4000:
        raise InvalidRequest(f"{what} {name[:60]!r}… is longer than a file system takes")
    if len(parts) > MAX_LEVELS:
        raise InvalidRequest(
            f"{what} {name[:60]!r}… has {len(parts)} levels of folders; at most {MAX_LEVELS} are taken"
        )
    return name


def check_text(value: str, what: str) -> None:
    """Raise ``InvalidRequest`` for text that no program can receive: with a NUL character, or without an encoding."""
    if "\0" in value:
        raise InvalidRequest(f"{what} holds a NUL character at position {value.index(chr(0))}; remove it")
    check_encodable(value, what)


def check_encodable(value: str, what: str) -> None:
    """Raise ``InvalidRequest`` for text that cannot be encoded as UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"{what} holds a lone surrogate at position {error.start}, which no encoding can carry; remove it"
        ) from None


ALIASES = {
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
    """The languages of cells and programs. ``capabilities()`` says which of them this host can run."""

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
        """Return every name that ``parse`` accepts."""
        return (*cls, *ALIASES)

    @classmethod
    def parse(cls, name: object) -> Language:
        """Return the language of a name or alias. Raises ``InvalidRequest``, with the known names, for any other."""
        if isinstance(name, cls):
            return name
        if not isinstance(name, str):
            raise InvalidRequest(f"language must be a string, got {quoted(name)}; {known_languages()}")
        key = name.strip().lower()
        try:
            return cls(ALIASES.get(key, key))
        except ValueError:
            import difflib  # most names are known

            near = difflib.get_close_matches(key[:40], cls.names(), n=1, cutoff=0.6)
            meant = f"did you mean {near[0]}? " if near else ""
            raise InvalidRequest(f"unsupported language {quoted(name)}; {meant}{known_languages()}") from None


def known_languages() -> str:
    """Return the known names and aliases, as the end of an error message."""
    aliases = " ".join(sorted(ALIASES))
    return f"expected one of: {', '.join(Language)} (or an alias: {aliases})"


#: Longer source code is refused: no cell is that long, and a compiler may crash on it.
MAX_CODE_BYTES = 16 << 20
#: More opening brackets in a row are refused: they have crashed parsers of several languages, and no program needs it.
MAX_BRACKET_RUN = 20_000

#: The longest single argument or variable that Linux passes to a program, and the total that is accepted here. Above
#: either, no program can be started; the total leaves room for the programs that the program starts itself.
MAX_ARGUMENT_BYTES = 128 << 10
MAX_ARGUMENTS_BYTES = 1 << 20

_BRACKET_RUN = re.compile(rf"[(\[{{]{{{MAX_BRACKET_RUN}}}")


@dataclass(frozen=True, kw_only=True)
class ExecRequest:
    """One program to run once.

    Args:
        language: The language, or one of its aliases.
        code: The source code; bytes only for ``wasm``.
        timeout: Time limit in seconds. There is no default, on purpose.
        stdin: Standard input; None means end of file at once.
        memory_limit_mb: Memory limit in MB; None means ``DEFAULT_MEMORY_MB``.
        env: Environment variables. Names like ``LD_PRELOAD`` are refused; a policy can allow them.
        args: Command-line arguments of the program.
        files: Files to put into the work folder before the start: relative path to content.
        limits: The other limits: CPU, processes, disk, output.

    Raises:
        InvalidRequest: When a field is malformed.
    """

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
            check_encodable(self.stdin, "stdin")
        _check_mapping("env", self.env)
        check_env(self.env)
        put(self, "env", MappingProxyType(dict(self.env)))
        if isinstance(self.args, str | bytes) or not isinstance(self.args, Sequence):
            raise InvalidRequest(f"args must be a list of strings, got {quoted(self.args)}; wrap it in a list")
        for arg in self.args:
            if not isinstance(arg, str):
                raise InvalidRequest(f"args must be strings, got {quoted(arg)}")
            check_text(arg, "argument")
        put(self, "args", tuple(self.args))
        _check_room(self.env, self.args)
        _check_mapping("files", self.files)
        for name, content in self.files.items():
            check_file_name(name)
            if not isinstance(content, str | bytes):
                raise InvalidRequest(f"content of file {name!r} must be text or bytes, got {type(content).__name__}")
            if isinstance(content, str):
                check_encodable(content, f"content of file {name!r}")
        _check_no_file_is_a_folder(self.files)
        put(self, "files", MappingProxyType(dict(self.files)))
        if not isinstance(self.limits, Limits):
            raise InvalidRequest(f"limits must be a Limits(...), got {quoted(self.limits)}")

    @functools.cached_property
    def memory_mb(self) -> int:
        """The memory limit that applies: the caller's, or the default."""
        return self.memory_limit_mb if self.memory_limit_mb is not None else DEFAULT_MEMORY_MB

    @property
    def source(self) -> bytes:
        """The source code as bytes."""
        return self.code.encode() if isinstance(self.code, str) else self.code

    @property
    def stdin_bytes(self) -> bytes | None:
        """Standard input as bytes; None means end of file at once."""
        return self.stdin.encode() if isinstance(self.stdin, str) else self.stdin

    def __getstate__(self) -> dict[str, object]:
        # A mapping proxy cannot be pickled, so plain dictionaries are sent and wrapped again on arrival.
        state = {f.name: getattr(self, f.name) for f in fields(self)}
        state["env"], state["files"] = dict(self.env), dict(self.files)
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, MappingProxyType(value) if isinstance(value, dict) else value)


def _check_room(env: Mapping[str, str], args: Sequence[str]) -> None:
    """Raise ``InvalidRequest`` for arguments and variables that are too long for the operating system."""
    sizes = {f"environment value of {name}": len(name) + len(value.encode()) + 2 for name, value in env.items()}
    sizes |= {f"argument {place}": len(arg.encode()) + 1 for place, arg in enumerate(args, 1)}
    for what, size in sizes.items():
        if size > MAX_ARGUMENT_BYTES:
            raise InvalidRequest(
                f"{what} has {size} bytes; a program can be given at most {MAX_ARGUMENT_BYTES}: "
                "give it as a file (files={…}) or as stdin"
            )
    # The kernel adds a pointer of 8 bytes for each of them.
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
    check_text(code, "code")
    if len(code) > MAX_CODE_BYTES // 4 and len(code.encode()) > MAX_CODE_BYTES:
        raise InvalidRequest(f"code has {len(code.encode())} bytes; at most {MAX_CODE_BYTES} are taken")
    if _BRACKET_RUN.search(code):
        raise InvalidRequest(
            f"code opens more than {MAX_BRACKET_RUN} brackets in a row; parsers crash on that, so it is refused"
        )


#: Called as ``on_output(stream, text)`` as output arrives, in order; ``stream`` is ``stdout`` or ``stderr``.
OnOutput = Callable[[str, str], None]
#: Called with the memory in use and its limit, in bytes, a few times a second on the thread of the run. It must be
#: quick and never raise.
OnUsage = Callable[[int, int], None]
#: Called on another thread when the program waits for input, with the prompt and whether the answer is a secret; the
#: deadline is paused meanwhile. Returns one line. ``EOFError``: there is no user to ask.
OnInput = Callable[[str, bool], str]
AnyOnInput = Callable[[str, bool], str | Awaitable[str]]


def check_listener(name: str, listener: object) -> None:
    """Raise ``InvalidRequest`` for a callback that cannot be called. Used before anything runs."""
    if listener is not None and not callable(listener):
        raise InvalidRequest(f"{name} must be a function, got {quoted(listener)}; for example {name}=print")


@dataclass(frozen=True, kw_only=True)
class Events:
    """What the caller of a run or a cell hears while it runs: the one value that carries callbacks down to its loop.

    None where nobody listens. The end is no event: it is returned, as an ``ExecResult``.
    """

    on_output: OnOutput | None = None
    on_usage: OnUsage | None = None
    on_input: OnInput | None = None

    def __post_init__(self) -> None:
        for name in ("on_output", "on_usage", "on_input"):
            if getattr(self, name) is not None:  # most runs hear nothing
                check_listener(name, getattr(self, name))


#: Nobody listens.
UNHEARD = Events()
