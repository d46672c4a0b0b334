"""``sandbox-kernel serve`` as a process: its address and token, one run, and the end by SIGTERM."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from sandbox_kernel.cli import main


@pytest.mark.slow
def test_the_command_serves_until_sigterm() -> None:
    env = {**os.environ, "SANDBOX_KERNEL_SERVE_TOKEN": "0123456789abcdef0123"}
    command = [sys.executable, "-m", "sandbox_kernel", "serve", "--port", "0", "--workers", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as server:
        try:
            assert server.stderr is not None
            found = re.match(r"Serving with 1 workers: (http://\S+)", server.stderr.readline())
            assert found is not None
            body = json.dumps({"code": "print(6 * 7)", "language": "python"}).encode()
            headers = {"Authorization": "Bearer 0123456789abcdef0123"}
            with urllib.request.urlopen(urllib.request.Request(found[1], body, headers), timeout=60) as answer:
                assert json.load(answer)["run_result"]["stdout"] == "42\n"
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0


@pytest.mark.parametrize("words", [["--workers", "0"], ["--queue", "-1"], ["--host", "0.0.0.0"], ["--port", "99999"]])
def test_wrong_options_are_told(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *words]) == 2
    assert words[0] in capsys.readouterr().err
