"""The languages and their aliases."""

from __future__ import annotations

from enum import StrEnum

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import quoted

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
