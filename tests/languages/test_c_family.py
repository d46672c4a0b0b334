"""C and C++: warnings, the cache, and compile steps that attack."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel import ExecResult, ProcessBackend, Sandbox, SandboxPolicy, Status
from sandbox_kernel.backends.base import RunContext
from sandbox_kernel.backends.process import ProcessConfig
from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.languages import c_family
from sandbox_kernel.languages.c_family import Zig, find_compiler
from sandbox_kernel.languages.compiled import CACHED
from sandbox_kernel.languages.recipe import availability
from sandbox_kernel.model import ExecRequest, Language


@pytest.fixture(autouse=True)
def compiler(needs: Callable[[str], None]) -> None:
    needs("c")
    needs("cpp")


def run_with(config: ProcessConfig, code: str, policy: SandboxPolicy | None = None, **rest: object):  # type: ignore[no-untyped-def]
    request = ExecRequest(language=Language.C, code=code, timeout=60, **rest)  # type: ignore[arg-type]
    return ProcessBackend(config, policy=policy).run(request)


WARNS = "int main(void) {\n  int unused;\n  return 0;\n}\n"


def test_warnings_are_shown_and_shown_again_when_the_program_comes_from_the_cache(tmp_path: Path) -> None:
    config = ProcessConfig(cache_dir=str(tmp_path / "cache"))
    first, second = run_with(config, WARNS), run_with(config, WARNS)
    assert "cell.c:2:7: warning" in first.stderr
    assert (first.stdout, first.stderr, first.exit_code) == (second.stdout, second.stderr, second.exit_code)
    assert (first.notes, second.notes) == ((), (CACHED,))
    assert first._repr_mimebundle_()[0] == second._repr_mimebundle_()[0], "nbval would see a difference"
    assert first.compile_duration is not None
    assert first.compile_duration > 0
    assert second.compile_duration == 0.0
    heard: list[str] = []
    request = ExecRequest(language=Language.C, code=WARNS, timeout=60)
    ProcessBackend(config).run(request, RunContext(on_output=lambda stream, text: heard.append(stream + text)))
    assert "".join(heard) == "stderr" + first.stderr


def test_files_that_a_cell_does_not_pull_in_are_not_part_of_the_key(tmp_path: Path) -> None:
    config = ProcessConfig(cache_dir=str(tmp_path / "cache"))
    code = '#include <stdio.h>\nint main(void) { return fgetc(fopen("n.txt", "r")); }'
    first, second = (run_with(config, code, files={"n.txt": text}) for text in "ab")
    assert (first.exit_code, second.exit_code) == (97, 98)
    assert second.notes == (CACHED,)


@pytest.mark.parametrize(
    "code",
    [
        '#include "n.h"\nint main(void) { return N; }',
        '#define HEADER "n.h"\n#include HEADER\nint main(void) { return N; }',
        '#inclu\\\nde "n.h"\nint main(void) { return N; }',
        '%:include "n.h"\nint main(void) { return N; }',
        "#include </box/n.h>\nint main(void) { return N; }",
    ],
)
@pytest.mark.one_case
def test_no_way_to_another_file_is_overlooked_by_the_key(tmp_path: Path, code: str) -> None:
    config = ProcessConfig(cache_dir=str(tmp_path / "cache"))
    codes = [run_with(config, code, files={"n.h": f"#define N {n}\n"}).exit_code for n in (4, 5)]
    assert codes == [4, 5]


def test_the_arguments_and_the_environment_are_not_part_of_the_key(tmp_path: Path) -> None:
    config = ProcessConfig(cache_dir=str(tmp_path / "cache"))
    code = "int main(int c, char **v) { return v ? c : 0; }"
    assert run_with(config, code).exit_code == 1
    second = run_with(config, code, args=["a", "b"], env={"X": "1"})
    assert (second.exit_code, second.notes) == (3, (CACHED,))


def test_a_program_that_asks_when_it_was_compiled_is_not_kept(tmp_path: Path) -> None:
    config = ProcessConfig(cache_dir=str(tmp_path / "cache"))
    code = "int main(void) { return __TIME__[0] == 0; }"
    assert [run_with(config, code).notes for _ in range(2)] == [(), ()]


def test_nothing_is_kept_where_the_policy_shows_host_files(tmp_path: Path) -> None:
    config = ProcessConfig(cache_dir=str(tmp_path / "cache"))
    shown = tmp_path / "shown"
    shown.mkdir()
    header = shown / "n.h"
    policy = SandboxPolicy.preset("standard").mount(shown, "/data")
    code = '#include "/data/n.h"\nint main(void) { return N; }'
    codes = []
    for number in (4, 5):
        header.write_text(f"#define N {number}")
        codes.append(run_with(config, code, policy).exit_code)
    assert codes == [4, 5]


def test_a_program_that_replaces_itself_is_kept_as_it_was_compiled(tmp_path: Path) -> None:
    config = ProcessConfig(cache_dir=str(tmp_path / "cache"))
    code = (
        "#include <stdio.h>\n#include <unistd.h>\n"
        'int main(void) { puts("honest"); unlink("/cell/cell"); FILE *f = fopen("/cell/cell", "w");'
        ' fputs("#!/bin/sh\\necho poisoned\\n", f); fclose(f); }'
    )
    assert run_with(config, code).stdout == "honest\n"
    second = run_with(config, code)
    assert (second.stdout, second.notes) == ("honest\n", (CACHED,))


def test_the_cache_can_be_switched_off() -> None:
    config = ProcessConfig(cache_dir="")
    assert [run_with(config, WARNS).notes for _ in range(2)] == [(), ()]


@pytest.mark.attack("O11", "bubblewrap")
@pytest.mark.parametrize("path", ["/etc/shadow", "/root/.bashrc"])
def test_the_compiler_cannot_read_the_hosts_files(box: Sandbox, path: str) -> None:
    result = box.run(f'#include "{path}"\nint main(void) {{}}', "c")
    assert result.status is Status.COMPILE_FAILED
    assert "root:" not in result.stderr
    assert "cell.c:1" in result.stderr


def test_the_requests_environment_is_not_the_compilers(box: Sandbox) -> None:
    result = box.run("int main(void) {}", "c", env={"CPATH": "/nowhere", "GCC_EXEC_PREFIX": "/nowhere/"})
    assert result.ok, result.stderr


def assert_compiler_was_stopped(result: ExecResult) -> None:
    """By the time limit on most machines; a fast one takes all the memory before."""
    if result.status is Status.MEMORY_EXCEEDED:
        assert result.limit == "memory"
        return
    assert (result.status, result.limit) == (Status.TIMEOUT, "timeout"), result.stderr
    assert result.notes == ("it was stopped while it was being compiled",)


MACROS = "#define A(x) x x x x x x x x x x\nint main(void) { " + "A(" * 9 + "0;" + ")" * 9 + " }"
TEMPLATES = (
    "template <int n, int m> struct F { static const long v = F<n - 1, m * 2>::v + F<n - 1, m * 2 + 1>::v; };\n"
    "template <int m> struct F<0, m> { static const long v = 1; };\nint main() { return F<25, 0>::v; }"
)


@pytest.mark.attack("O12", "bubblewrap")
@pytest.mark.slow
@pytest.mark.parametrize(("bomb", "language", "limit"), [(MACROS, "c", 1), (TEMPLATES, "cpp", 3)], ids=["c", "cpp"])
def test_a_bomb_is_stopped_in_time_and_said_to_be_compiling(box: Sandbox, bomb: str, language: str, limit: int) -> None:
    assert_compiler_was_stopped(box.run(bomb, language, timeout=limit))


@pytest.mark.attack("O12", "bubblewrap")
def test_a_compiler_that_takes_too_much_memory_is_stopped(box: Sandbox) -> None:
    result = box.run(MACROS, "c", memory_mb=64, timeout=60)
    assert (result.status, result.limit) == (Status.MEMORY_EXCEEDED, "memory"), result.stderr


def test_a_compiler_that_prints_without_end_is_cut(box: Sandbox) -> None:
    lines = "\n".join(f'#warning "{"w" * 2000}"' for _ in range(1000))
    result = box.run(lines + "\nint main(void) {}", "c")
    assert result.ok
    assert result.stderr_truncated


def test_the_work_folder_is_not_touched_by_compiling() -> None:
    code = '#include <stdlib.h>\nint main(void) { return system("ls -A") ; }'
    with Sandbox() as empty:
        result = empty.run(code, "c", files={"only.txt": ""})
    assert result.stdout == "only.txt\n"


def test_a_policy_without_spawning_compiles_and_stops_the_program() -> None:
    code = "#include <errno.h>\n#include <unistd.h>\nint main(void) { return fork() < 0 ? errno : 0; }"
    with Sandbox(SandboxPolicy()) as strict:
        assert strict.run(code, "c").exit_code == 1  # EPERM


def test_a_compiler_that_is_not_there_is_said_with_the_remedy() -> None:
    config = ProcessConfig(cc_path="/nowhere/cc")
    found = availability(config, Language.C)
    assert (found.available, found.remedy) == (False, "pip install 'sandbox-kernel[c]'")
    assert "/nowhere/cc" in found.reason
    with pytest.raises(BackendUnavailable, match="/nowhere/cc"):
        run_with(config, "int main(void) {}")


def test_without_any_compiler_the_one_from_the_registry_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_kernel.languages.c_family.shutil.which", lambda name: None)
    found = find_compiler.__wrapped__("cc", ("cc", "gcc", "clang"), "cc")
    assert found.zig is not None
    assert found.version.startswith("zig ")


def test_the_report_warns_while_the_first_cell_would_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zig-program").touch()
    zig = Zig(str(tmp_path / "zig-program"), "0.16.0")
    monkeypatch.setattr("sandbox_kernel.languages.c_family.default_folder", lambda: str(tmp_path / "compiled"))
    assert "builds its libraries" in zig.readiness("c++")
    os.makedirs(c_family._folder(zig, "c++", ""))
    assert zig.readiness("c++") == "zig 0.16.0"


def test_a_zig_that_was_installed_anew_does_not_use_what_the_old_one_built(tmp_path: Path) -> None:
    program = tmp_path / "zig"
    program.touch()
    zig = Zig(str(program), "0.16.0")
    before = c_family._folder(zig, "cc", "")
    assert c_family._folder(zig, "cc", "") == before
    os.utime(program, (1, 1))
    assert c_family._folder(zig, "cc", "") != before


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_c_runs_on_the_compiler_from_the_registry_alone() -> None:
    code = '#include <math.h>\n#include <stdio.h>\nint main(void) {\n  int unused;\n  printf("%.2f\\n", cos(0)); }'
    result = run_with(ProcessConfig(cc_path="zig"), code, memory_limit_mb=256)
    assert (result.status, result.stdout) == (Status.OK, "1.00\n"), result.stderr
    assert "cell.c:4:7: warning" in result.stderr


def test_a_file_of_the_users_own_is_not_taken_for_the_program_that_compiles() -> None:
    files = {"compile.py": "raise SystemExit('taken')", "_signal.py": "raise SystemExit('taken')"}
    with Sandbox() as box:
        result = box.run("int main(void) { return 7; }", "c", files=files)
    assert (result.exit_code, result.stderr) == (7, "")
