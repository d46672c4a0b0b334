"""JavaScript on Node.js: both kinds of modules, the warm start and its limits."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel import BackendUnavailable, ProcessBackend, Sandbox, SandboxPolicy, Status
from sandbox_kernel.backends.process import ProcessConfig
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.languages.node import _can_be_told, find_node
from sandbox_kernel.languages.recipe import availability
from sandbox_kernel.model import ExecRequest, Language


@pytest.fixture(autouse=True)
def node(needs: Callable[[str], None]) -> None:
    needs("javascript")


@pytest.mark.parametrize(
    ("code", "shown", "env"),
    [
        ("const os = require('os')\nconsole.log(await Promise.resolve(typeof os.cpus))", "function", {}),
        ("import fs from 'node:fs'\nconsole.log(typeof fs.readSync, import.meta.main)", "function true", {}),
        ("console.log(require.main === module, __filename, process.cwd())", "true /cell/cell.js /box", {}),
        ("console.log(Object.keys(process.env).sort().join())", "HOME,LANG,PATH,WORD", {"WORD": "1"}),
        ("console.log(Error.stackTraceLimit)", "77", {"NODE_OPTIONS": "--stack-trace-limit=77"}),
        ("console.log(new Date(0).getHours())", "9", {"TZ": "Asia/Tokyo"}),
    ],
    ids=["await and require", "module", "common module", "environment", "variable of the start", "time zone"],
)
def test_a_cell_is_the_main_module_and_has_the_environment_of_its_request(
    box: Sandbox, code: str, shown: str, env: dict[str, str]
) -> None:
    result = box.run(code, "js", env=env)
    assert (result.stdout, result.stderr) == (f"{shown}\n", "")


@pytest.mark.parametrize(
    "code", ["import { x } from './part.mjs'; console.log(x)", "console.log(require('./part.mjs').x)"]
)
def test_parts_of_a_program_are_found_in_the_work_folder(box: Sandbox, code: str) -> None:
    result = box.run(code, "js", files={"part.mjs": "export const x = 5"})
    assert result.stdout == "5\n", result.stderr


@pytest.mark.parametrize("code", ["import f from 'five'; console.log(f)", "console.log(require('five'))"])
def test_packages_are_found_in_the_work_folder(box: Sandbox, code: str) -> None:
    result = box.run(code, "js", files={"node_modules/five/index.js": "module.exports = 5"})
    assert result.stdout == "5\n", result.stderr


@pytest.mark.parametrize(
    ("code", "line"),
    [("import 'node:fs'\n\nnull.x", 3), ("async function f() {\n  throw new Error('late')\n}\nf()", 2)],
    ids=["module", "rejected promise"],
)
def test_an_error_names_its_line_and_fails(box: Sandbox, code: str, line: int) -> None:
    result = box.run(code, "js")
    assert (result.status, result.exit_code) == (Status.FAILED, 1)
    assert f"/cell/cell.js:{line}" in result.stderr


def test_no_frame_of_ours_is_in_a_stack_trace(box: Sandbox) -> None:
    for code in ("throw new Error('x')", "await null; throw new Error('x')"):
        assert "/guest/" not in box.run(code, "js").stderr


def test_the_waiting_program_has_the_limits_of_the_request(box: Sandbox) -> None:
    read = "require('fs').readFileSync('/proc/self/limits', 'utf8')"
    code = f"console.log({read}.match(/Max open files +(\\d+) +(\\d+)/)[2])"
    assert box.run(code, "js").stdout == "256\n"


def test_no_descriptor_of_ours_is_left_to_the_program(box: Sandbox) -> None:
    code = (
        "const fs = require('fs')\n"
        "const link = (n) => { try { return fs.readlinkSync('/proc/self/fd/' + n) } catch { return '' } }\n"
        "const all = fs.readdirSync('/proc/self/fd').map(link)\n"
        "console.log(all.filter((t) => t.startsWith('socket:')).length)"
    )  # fmt: skip
    assert box.run(code, "js").stdout == "0\n"


def test_a_policy_without_spawning_stops_child_processes_but_not_workers() -> None:
    code = (
        "const { spawnSync } = require('child_process')\n"
        "console.log(spawnSync('/bin/true').error?.code)\n"
        "new (require('worker_threads').Worker)('console.log(\"worker\")', { eval: true })"
    )
    with Sandbox(SandboxPolicy()) as strict:
        result = strict.run(code, "js")
    assert result.stdout == "EPERM\nworker\n", result.stderr


@pytest.mark.slow
def test_garbage_is_collected_before_the_limit_is_met(box: Sandbox) -> None:
    code = "let n = 0; for (let i = 0; i < 300; i++) n += new Array(100_000).fill(i).length; console.log(n)"
    result = box.run(code, "js", memory_mb=96)
    assert (result.status, result.stdout) == (Status.OK, "30000000\n"), result.stderr


def test_a_program_that_aborts_has_failed(box: Sandbox) -> None:
    result = box.run("process.abort()", "js")
    assert (result.status, result.signal) == (Status.FAILED, 6)


def test_too_little_memory_is_refused_with_what_is_needed(box: Sandbox) -> None:
    with pytest.raises(InvalidRequest, match="at least 64 MB"):
        box.run("1", "js", memory_mb=32)


def test_a_node_that_is_not_there_is_said_with_the_remedy() -> None:
    config = ProcessConfig(node_path="/nowhere/node")
    found = availability(config, Language.JAVASCRIPT)
    assert not found.available
    assert "/nowhere/node" in found.reason
    assert "pip install 'sandbox-kernel[javascript]'" in found.remedy
    with pytest.raises(BackendUnavailable, match=r"pip install 'sandbox-kernel\[javascript\]'"):
        ProcessBackend(config).run(ExecRequest(language=Language.JAVASCRIPT, code="1", timeout=5))


def test_a_node_on_the_path_is_used_where_the_package_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged, _ = find_node("node")
    (tmp_path / "node").symlink_to(packaged)
    monkeypatch.setattr("sandbox_kernel.languages.node._packaged_node", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_node.__wrapped__("node")[0] == packaged
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BackendUnavailable, match=r"no Node\.js: 'node' was not found"):
        find_node.__wrapped__("node")


def test_a_node_that_is_too_old_is_said_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    fake = tmp_path_factory.mktemp("old") / "node"
    fake.write_text("#!/bin/sh\necho v18.0.0\n")
    fake.chmod(0o755)
    with pytest.raises(BackendUnavailable, match=r"18\.0\.0"):
        find_node(str(fake))


@pytest.mark.parametrize(
    ("version", "told"),
    [("22.21.0", False), ("24.13.9", False), ("24.14.0", True), ("24.19.0", True), ("25.3.1", False), ("25.4.0", True)],
)
def test_some_versions_can_be_told_of_the_proxy_after_they_have_started(version: str, told: bool) -> None:
    assert _can_be_told(version) is told
