"""Runs the public WASI test suite by hand: every module for preview 1 is a program of the wasm backend.

    python -m tests.backends.wasm.wasi_suite FOLDER [NAME…]

FOLDER holds the folder ``tests`` of WebAssembly/wasi-testsuite, branch prod/testsuite-base. Prints what did not pass.
A test passes by its exit code and its output, as the suite's own embedder decides.
"""

import argparse
import json
from pathlib import Path

from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.model import ExecRequest, ExecResult, Language


def modules(folder: Path) -> list[Path]:
    """Return the modules for preview 1."""
    return sorted(folder.glob("**/wasm32-wasip1/*.wasm"))


def run(backend: WasmBackend, module: Path) -> tuple[bool, ExecResult]:
    """Run one module with the arguments, variables and files that its description names."""
    described = module.with_suffix(".json")
    fields = json.loads(described.read_text()) if described.exists() else {}
    root = module.parent / fields["root"] if "root" in fields else None
    files = {}
    for path in sorted(root.rglob("*")) if root is not None else []:
        if path.is_file():
            files[str(path.relative_to(root or path))] = path.read_bytes()
        elif not any(path.iterdir()):  # a folder is made with the files in it
            files[str(path.relative_to(root or path) / ".keep")] = b""
    request = ExecRequest(
        language=Language.WASM,
        code=module.read_bytes(),
        args=tuple(fields.get("args", ())),
        env=fields.get("env", {}),
        files=files,
        timeout=20,
    )
    result = backend.run(request)
    wanted = fields.get("exit_code", 0)
    passed = result.exit_code == wanted and result.stdout == fields.get("stdout", result.stdout)
    return passed, result


def main() -> None:
    """Run all modules, or those whose names are given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    backend, passed, chosen = WasmBackend(), 0, modules(given.folder)
    chosen = [module for module in chosen if not given.names or module.stem in given.names]
    for module in chosen:
        good, result = run(backend, module)
        passed += good
        if not good:
            print(f"{module.stem}: {result.status}, exit code {result.exit_code}")
            print("    " + "\n    ".join((result.stdout + result.stderr).strip().splitlines()[:6]))
    print(f"{passed} of {len(chosen)} passed")


if __name__ == "__main__":
    main()
