"""Rust: wrapped cells, diagnostics against the cell, and compile steps that attack."""

from collections.abc import Callable

import pytest

from sandbox_kernel import Sandbox, Status
from sandbox_kernel.backends.process import ProcessConfig
from sandbox_kernel.languages.recipe import availability
from sandbox_kernel.languages.rust import Rustc, find_rustc, wrap
from sandbox_kernel.model import Language


@pytest.fixture
def rust(needs: Callable[[str], None]) -> None:
    needs("rust")


@pytest.mark.parametrize(
    "source",
    [
        "fn main() {}",
        "// fn\nfn  main ()\n{}",
        "fn main<'a>() {}",
        "#[x]\npub fn main() {}",
        "fn helper() {}\nfn main() {}",
    ],
)
def test_a_program_with_main_is_left_as_it_is(source: str) -> None:
    assert wrap(source) == source


@pytest.mark.parametrize(
    "source", ["let a = 1;", "// fn main() {}\nlet a = 1;", 'println!("fn main()");', "fn mainly() {}"]
)
def test_a_cell_without_main_becomes_its_body_and_keeps_its_lines(source: str) -> None:
    before, found, _ = wrap(source).partition(source)
    assert found
    assert "\n" not in before


def test_only_a_cell_that_hands_on_errors_returns_them() -> None:
    assert "Result" in wrap('let n: i32 = "5".parse()?;')
    assert "Result" in wrap('let n: i32 = "5".parse()?')
    assert "Result" not in wrap('println!("{:?} really?", 5);')


@pytest.mark.parametrize(("version", "edition"), [("rustc 1.84.1 (x)", "2021"), ("rustc 1.85.0 (x)", "2024")])
def test_the_newest_edition_that_the_compiler_knows_is_used(version: str, edition: str) -> None:
    assert Rustc("/r", "/s", version).edition == edition


@pytest.mark.usefixtures("rust")
class TestOnThisHost:
    def test_the_shim_of_rustup_is_looked_through(self) -> None:
        found = find_rustc("rustc")
        assert found.executable == f"{found.sysroot}/bin/rustc"

    def test_diagnostics_of_a_wrapped_cell_name_its_lines(self, box: Sandbox) -> None:
        result = box.run('let x = 5;\nprintln!("{}", x + y);', "rust")
        assert result.status is Status.COMPILE_FAILED
        assert "--> cell.rs:2:20\n" in result.stderr

    def test_what_we_added_brings_no_warning(self, box: Sandbox) -> None:
        for code in ('let n: i32 = "5".parse()?; println!("{n}");', 'let n: i32 = "5".parse()?; println!("{n}")'):
            result = box.run(code, "rust")
            assert (result.stdout, result.stderr) == ("5\n", "")

    def test_an_error_that_is_handed_on_fails_the_cell(self, box: Sandbox) -> None:
        result = box.run('let n: i32 = "five".parse()?; println!("{n}");', "rust")
        assert (result.status, result.exit_code) == (Status.FAILED, 1)
        assert "ParseIntError" in result.stderr

    def test_other_parts_of_the_program_are_found(self, box: Sandbox) -> None:
        result = box.run(
            'mod part;\nfn main() { println!("{}", part::seven()); }',
            "rust",
            files={"part.rs": "pub fn seven() -> i32 { 7 }"},
        )
        assert result.stdout == "7\n", result.stderr

    @pytest.mark.parametrize("path", ["/etc/shadow", "/root/.bashrc", "../../../../etc/shadow"])
    @pytest.mark.attack("O11", "bubblewrap")
    def test_the_compiler_cannot_include_the_hosts_files(self, box: Sandbox, path: str) -> None:
        result = box.run(f'const S: &str = include_str!("{path}");\nprintln!("{{S}}");', "rust")
        assert result.status is Status.COMPILE_FAILED
        assert "couldn't read" in result.stderr
        assert "root:" not in result.stderr

    def test_the_requests_environment_is_the_programs_alone(self, box: Sandbox) -> None:
        result = box.run('println!("{}", env!("SECRET"));', "rust", env={"SECRET": "here"})
        assert result.status is Status.COMPILE_FAILED
        result = box.run('println!("{}", std::env::var("SECRET")?);', "rust", env={"SECRET": "here"})
        assert result.stdout == "here\n"

    def test_the_compilers_environment_is_not_the_programs(self, box: Sandbox) -> None:
        result = box.run('for (k, _) in std::env::vars() { println!("{k}"); }', "rust")
        assert sorted(result.stdout.split()) == ["HOME", "LANG", "PATH"]

    @pytest.mark.attack("O11", "bubblewrap")
    def test_the_compiler_sees_nothing_of_the_hosts_environment(
        self, box: Sandbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HOST_SECRET", "here")
        result = box.run('println!("{:?}", option_env!("HOST_SECRET"));', "rust")
        assert result.stdout == "None\n"

    @pytest.mark.attack("O12", "bubblewrap")
    @pytest.mark.slow
    def test_an_endless_constant_is_stopped_in_time(self, box: Sandbox) -> None:
        code = (
            "#![allow(long_running_const_eval)]\nconst X: u32 = { let mut i = 0u32; loop { i = i.wrapping_add(1); } };"
        )
        result = box.run(code + '\nprintln!("{X}");', "rust", timeout=3)
        assert (result.status, result.limit) == (Status.TIMEOUT, "timeout")
        assert result.notes == ("it was stopped while it was being compiled",)

    @pytest.mark.attack("O12", "bubblewrap")
    @pytest.mark.slow
    def test_a_macro_bomb_is_stopped(self, box: Sandbox) -> None:
        code = (
            '#![recursion_limit = "1000000"]\n'
            "macro_rules! bomb { ($($x:tt)*) => { bomb!($($x)* $($x)* $($x)*) } }\nfn main() { bomb!(a b c d); }"
        )
        result = box.run(code, "rust", timeout=10, memory_mb=256)
        assert result.status in (Status.TIMEOUT, Status.MEMORY_EXCEEDED), result.stderr

    def test_a_hello_fits_into_256_mb(self, box: Sandbox) -> None:
        result = box.run('println!("small");', "rust", memory_mb=256)
        assert result.stdout == "small\n", result.stderr

    def test_overflow_is_an_error_as_in_a_debug_build(self, box: Sandbox) -> None:
        result = box.run('let n = std::env::args().count() as u8;\nprintln!("{}", n - 2);', "rust")
        assert "cell.rs:2" in result.stderr
        assert result.exit_code == 101


def test_a_rustc_that_is_not_there_is_said_with_the_remedy() -> None:
    found = availability(ProcessConfig(rustc_path="/nowhere/rustc"), Language.RUST)
    assert not found.available
    assert "/nowhere/rustc" in found.reason
    assert "rustup.rs" in found.remedy
