"""pip, cargo and the clients that people use work inside as they are, through the proxy, and stay inside its rules."""

import importlib.util
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trustme

from sandbox_kernel import ExecResult, Sandbox, SandboxPolicy
from tests.conftest import need
from tests.package_index import HOST, PACKAGE, package_index

#: Minutes for a machine with much else to do; nothing here takes longer than seconds.
PATIENCE_S = 240.0
CA = "/box/ca.pem"


@dataclass
class Index:
    """A registry that runs, what it was asked for, and the authority of its certificate if it has one."""

    url: str
    port: int
    asked: list[str]
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def policy(self) -> SandboxPolicy:
        return SandboxPolicy.preset("standard").allow_domain(HOST, self.port)

    def box(self, policy: SandboxPolicy | None = None) -> Sandbox:
        made = Sandbox(policy or self.policy, allow_private_for=[HOST], resolver=lambda *_: ["127.0.0.1"])
        for name, data in self.files.items():
            made.write_file(name, data)
        return made


@pytest.fixture(params=["http", "https"])
def index(request: pytest.FixtureRequest) -> Iterator[Index]:
    authority = trustme.CA() if request.param == "https" else None
    with package_index(authority) as (url, port, asked):
        yield Index(url, port, asked, {} if authority is None else {"ca.pem": authority.cert_pem.bytes()})


def pip(index: Index) -> str:
    """The words after ``pip install`` for an index that is not the usual one; a https one brings its own authority."""
    trust = f"--cert {CA}" if index.files else f"--trusted-host {HOST}"
    return f"--index-url {index.url}/simple/ {trust}"


def was_good(result: ExecResult) -> None:
    assert result.ok, result.stdout + result.stderr
    assert result.violations == ()


@pytest.mark.slow
def test_pip_installs_for_the_runs_after_it(index: Index) -> None:
    with index.box() as box:
        code = f"python -m pip install --target /box/lib {pip(index)} {PACKAGE}"
        was_good(box.run(code, "command", timeout=PATIENCE_S))
        used = box.run(f"import sys; sys.path.insert(0, '/box/lib'); import {PACKAGE}; print({PACKAGE}.answer)")
        assert used.stdout == "42\n", used.stderr
    assert any(path.endswith(".whl") for path in index.asked)


@pytest.mark.slow
def test_pip_from_an_index_that_no_rule_names_fails_and_the_option_is_told(index: Index) -> None:
    with index.box(SandboxPolicy.preset("standard").allow_domain("other.test")) as box:
        code = f"python -m pip install --retries 0 --target /box/lib {pip(index)} {PACKAGE}"
        result = box.run(code, "command", timeout=PATIENCE_S)
    assert not result.ok
    assert [violation.remedy for violation in result.violations] == [f"--allow-net {HOST}:{index.port}"]
    assert index.asked == []


MANIFEST = f'[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n{PACKAGE} = "1"\n'
MAIN = f'fn main() {{ println!("{{}}", {PACKAGE}::answer()); }}\n'


def toolchain() -> Path:
    """The folder of the real cargo, behind rustup's shim."""
    need(shutil.which("cargo") and shutil.which("rustc") and shutil.which("cc"), "this host has no cargo, rustc or cc")
    asked = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True)
    return Path(asked.stdout.strip())


@pytest.mark.one_case
def test_cargo_builds_with_a_dependency_that_it_fetches(index: Index) -> None:
    config = f'[source.crates-io]\nreplace-with = "own"\n[source.own]\nregistry = "sparse+{index.url}/crates/"\n'
    root = toolchain()
    policy = index.policy.mount(root, "/rust")
    files = {"Cargo.toml": MANIFEST, "src/main.rs": MAIN, ".cargo/config.toml": config}
    env = {"CARGO_HTTP_CAINFO": CA} if index.files else {}
    with index.box(policy) as box:
        code = "PATH=/rust/bin:$PATH cargo run --quiet"
        result = box.run(code, "command", timeout=PATIENCE_S, files=files, env=env)
    was_good(result)
    assert result.stdout == "42\n"
    assert index.asked[-1] == f"/files/{PACKAGE}/1.0.0/download"


CLIENTS = {
    "requests": "import requests; print(requests.get(URL, verify=VERIFY).status_code)",
    "httpx": "import httpx, ssl; print(httpx.get(URL, verify=ssl.create_default_context(cafile=VERIFY) if VERIFY else True).status_code)",
}


@pytest.mark.parametrize(("module", "code"), CLIENTS.items(), ids=CLIENTS)
@pytest.mark.slow
def test_libraries_of_python_find_the_proxy(index: Index, module: str, code: str) -> None:
    need(importlib.util.find_spec(module), f"{module} is not installed")
    verify = repr(CA) if index.files else "None"
    with index.box() as box:
        result = box.run(code.replace("URL", repr(f"{index.url}/simple/{PACKAGE}/")).replace("VERIFY", verify))
    was_good(result)
    assert result.stdout == "200\n"
