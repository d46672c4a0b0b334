"""Zig from the registry. Compiling with it takes seconds, so a few programs must show everything."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox, Status
from sandbox_kernel.backends.process import ProcessConfig
from sandbox_kernel.errors import BackendUnavailable, InvalidRequest
from sandbox_kernel.languages import c_family, interpreters
from sandbox_kernel.languages.compiled import CACHED

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(autouse=True)
def compiler(needs: Callable[[str], None]) -> None:
    needs("zig")


WHOLE = """\
const std = @import("std");
const part = @import("part.zig");
pub fn main(init: std.process.Init) !void {
    const args = try init.minimal.args.toSlice(init.arena.allocator());
    var text: [99]u8 = undefined;
    const count = try std.Io.File.stdin().readStreaming(init.io, &.{&text});
    const out = std.Io.File.stdout();
    try out.writeStreamingAll(init.io, "wörld 漢字 🙂 ");
    try out.writeStreamingAll(init.io, text[0..count]);
    try out.writeStreamingAll(init.io, args[1]);
    try out.writeStreamingAll(init.io, init.environ_map.get("WORD").?);
    if (count == part.five) return error.Here;
}
"""


@pytest.mark.slow
def test_a_program_gets_its_input_arguments_and_environment_and_is_remembered(box: Sandbox) -> None:
    given = {"stdin": "input", "args": ["-arg-"], "env": {"WORD": "env"}, "files": {"part.zig": "pub const five = 5;"}}
    first = box.run(WHOLE, "zig", timeout=300, **given)  # type: ignore[arg-type]
    second = box.run(WHOLE, "zig", timeout=300, **given)  # type: ignore[arg-type]
    assert first.stdout == second.stdout == "wörld 漢字 🙂 input-arg-env"
    assert (first.status, first.exit_code) == (Status.FAILED, 1)
    assert "/cell/cell.zig:12" in first.stderr
    assert (second.stderr, second.notes) == (first.stderr, (CACHED,))


@pytest.mark.slow
def test_a_mistake_names_the_line_of_the_cell(box: Sandbox) -> None:
    result = box.run("pub fn main() void {\n\n    const b = ;\n}", "zig", timeout=120)
    assert result.status is Status.COMPILE_FAILED
    assert "cell.zig:3" in result.stderr


@pytest.mark.slow
def test_the_compiler_cannot_embed_the_hosts_files(box: Sandbox) -> None:
    code = 'const s = @embedFile("/etc/shadow");\npub fn main() void {\n    @compileLog(s);\n}'
    result = box.run(code, "zig", timeout=120)
    assert result.status is Status.COMPILE_FAILED
    assert "root:" not in result.stderr


ENDLESS = """\
const n = blk: {
    @setEvalBranchQuota(4000000000);
    var i: u64 = 0;
    while (i < 4000000000) i += 1;
    break :blk i;
};
pub fn main() void {
    _ = n + 1;
}
"""


@pytest.mark.slow
def test_an_endless_computation_at_compile_time_is_stopped(box: Sandbox) -> None:
    result = box.run(ENDLESS, "zig", timeout=8)
    assert result.status is Status.TIMEOUT, result.stderr
    assert result.notes == ("it was stopped while it was being compiled",)


def test_too_little_memory_is_refused_with_what_is_needed(box: Sandbox) -> None:
    with pytest.raises(InvalidRequest, match="at least 512 MB"):
        box.run("pub fn main() void {}", "zig", memory_mb=256)


def test_without_the_package_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_family, "find_zig", lambda: None)
    with pytest.raises(BackendUnavailable) as caught:
        c_family.ZigLanguage().find(ProcessConfig())
    assert caught.value.remedy == c_family.REMEDY


def test_a_cache_that_cannot_be_written_is_said_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file where the folder would be: that stops root too.
    (tmp_path / "file").touch()
    monkeypatch.setattr(c_family, "default_folder", lambda: str(tmp_path / "file" / "compiled"))
    found = c_family.find_zig()
    assert found is not None
    with pytest.raises(BackendUnavailable, match=r"cannot be kept in .*XDG_CACHE_HOME"):
        c_family.prepared.__wrapped__(found, "cc")


@pytest.mark.parametrize(
    "code", [b'@import ("x.zig")', b'@import( "x.zig")', b'@import // c\n("x.zig")', b'@import("x")']
)
def test_an_import_in_any_spelling_makes_the_files_beside_it_part_of_the_cached_program(code: bytes) -> None:
    assert c_family._OTHER_ZIG_FILES.search(b"const x = " + code)
    assert not c_family._OTHER_ZIG_FILES.search(b'const std = @import("std");')


@pytest.mark.parametrize(
    "code", [b'import "./lib"', b'import lib "../box/lib"', b"import `./lib`", b'import "\\x2e./lib"']
)
def test_an_import_of_a_folder_in_any_spelling_makes_its_files_part_of_a_cached_go_program(code: bytes) -> None:
    assert interpreters._RELATIVE.search(b"package main\n" + code)
    assert not interpreters._RELATIVE.search(b'package main\nimport ("fmt"; "os/exec")')
