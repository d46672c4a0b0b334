"""Compilers for WebAssembly are found with all that they need, or it is said what is missing and how to get it."""

from pathlib import Path

import pytest

from sandbox_kernel.backends.wasm.toolchains import find_toolchain, find_wasi_rust
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.walls import Places
from sandbox_kernel.model import ExecRequest, Language, Status


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def sysroot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Rust toolchain of scripts, with nothing else on PATH than a C compiler."""
    root = tmp_path / "rust"
    program(root / "bin" / "rustc", f'#!/bin/sh\n[ "$1" = --print ] && echo {root} || echo "rustc 1.90.0 (abc 2025)"\n')
    program(tmp_path / "path" / "cc")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return root


def rustc_of(root: Path) -> str:
    return str(root / "bin" / "rustc")


def command_of(root: Path) -> str:
    request = ExecRequest(language=Language.RUST, code='println!("x");', timeout=1)
    work = find_wasi_rust(rustc_of(root)).compilation(request, "cell.rs", Places())
    assert work.source.startswith(b"fn main() {")
    command = " ".join(work.argv)
    return command[command.index("--target") : command.index("opt-level=1") + len("opt-level=1")]


def test_a_rust_without_the_target_is_told_how_to_get_it(sysroot: Path) -> None:
    with pytest.raises(BackendUnavailable, match=r"no library for WebAssembly .*rustup target add wasm32-wasip1"):
        find_wasi_rust(rustc_of(sysroot))


def test_no_rust_at_all_is_told_both_steps(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match=r"rustup\.rs.*rustup target add"):
        find_wasi_rust(str(tmp_path / "nothing"))


@pytest.mark.parametrize("target", ["wasm32-wasip1", "wasm32-wasi"])
def test_a_toolchain_of_rustup_links_by_itself(sysroot: Path, target: str) -> None:
    program(sysroot / "lib" / "rustlib" / target / "lib" / "libstd-1.rlib")
    program(sysroot / "lib" / "rustlib" / "aarch64-unknown-linux-gnu" / "bin" / "rust-lld")
    assert command_of(sysroot) == f"--target {target} -C opt-level=1"


def test_one_of_a_distribution_is_given_the_newest_linker_of_the_system(sysroot: Path, tmp_path: Path) -> None:
    program(sysroot / "lib" / "rustlib" / "wasm32-wasi" / "lib" / "libstd-1.rlib")
    with pytest.raises(BackendUnavailable, match="no wasm-ld to link with; install lld"):
        find_wasi_rust(rustc_of(sysroot))
    program(tmp_path / "path" / "wasm-ld-9")
    newest = program(tmp_path / "path" / "wasm-ld-14")
    assert command_of(sysroot).startswith(f"--target wasm32-wasi -C linker={newest} -C linker-flavor=wasm-ld ")


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_rust_runs_where_it_can_and_says_why_where_it_cannot(guest_backend: WasmBackend) -> None:
    request = ExecRequest(language=Language.RUST, code='println!("{}", 6 * 7); std::process::exit(200)', timeout=120)
    shown = guest_backend._languages()[Language.RUST]
    try:
        find_toolchain(Language.RUST)
    except BackendUnavailable:
        assert not shown.available and "rustup target add wasm32-wasip1" in shown.remedy
        with pytest.raises(BackendUnavailable, match="WebAssembly"):
            guest_backend.run(request)
        return
    result = guest_backend.run(request)
    assert (result.stdout, result.exit_code, result.status) == ("42\n", 200, Status.FAILED)
