"""A new user and the network: what is refused is explained under the cell, with the option to copy."""

import json

import pytest

from sandbox_kernel.receipt import MIME

GET = "import urllib.request\ntry: urllib.request.urlopen('http://other.test/')\nexcept OSError as error: print(error)"
CELLS = {
    "python": f"%%sandbox python --allow-net allowed.test\n{GET}",
    "command": "%%sandbox bash --allow-net allowed.test\ncurl -sS http://other.test/ || wget -qO- http://other.test/; true",
    "javascript": "%%sandbox js --allow-net allowed.test\ntry { await fetch('http://other.test/') } catch { }",
    "wasm": "%%sandbox js --backend wasm --allow-net allowed.test\ntry { await fetch('http://other.test/') } catch { }",
}


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
@pytest.mark.one_case
def test_the_denied_domain_is_explained_under_the_cell_that_allowed_another(kernel, cell):
    reply, outputs = kernel.run(cell)
    assert reply["status"] == "ok"
    (receipt,) = [content["data"] for kind, content in outputs if kind == "display_data" and MIME in content["data"]]
    (violation,) = receipt[MIME]["violations"]
    assert violation["rule"] == "domain_not_allowed"
    assert violation["subject"] == "other.test:80"
    assert violation["remedy"] == "--allow-net other.test:80"
    assert "<code>--allow-net other.test:80</code>" in receipt["text/html"]
    assert "→ --allow-net other.test:80" in receipt["text/plain"]


def test_the_permission_of_one_cell_is_not_the_next_ones(kernel):
    kernel.run(CELLS["python"])
    text = kernel.text("import os; print([name for name in os.environ if 'proxy' in name.lower()])")
    assert text == "[]\n"


def test_whoever_never_asked_for_network_is_told_how(kernel):
    reply, _ = kernel.run("import urllib.request; urllib.request.urlopen('http://other.test/')", stop_on_error=False)
    assert reply["ename"] == "URLError"
    assert "--allow-net other.test" in "".join(reply["traceback"])


@pytest.mark.slow
def test_a_kernel_writes_the_audit_log_that_its_environment_names(start_kernel, tmp_path):
    log = tmp_path / "audit.jsonl"
    start_kernel(env={"SANDBOX_KERNEL_AUDIT": str(log)}).run(CELLS["python"])
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["event"], line["host"], line["rule"]) for line in lines] == [
        ("refused", "other.test", "domain_not_allowed")
    ]


@pytest.mark.slow
def test_a_cell_has_the_placeholder_of_a_secret_and_never_its_value(start_kernel):
    env = {"TOKEN": "real-value-0123456789", "SANDBOX_KERNEL_SECRETS": "TOKEN@api.test"}
    kernel = start_kernel(env=env)
    shown = {kernel.text(cell) for cell in ("import os; print(os.environ['TOKEN'])", "%%sandbox bash\necho $TOKEN")}
    (placeholder,) = shown
    assert placeholder.startswith("sandbox-secret-")
    reply, outputs = kernel.run(
        "%%sandbox python --allow-net other.test\nimport os, urllib.request\n"
        "asked = urllib.request.Request('http://other.test/', headers={'X': os.environ['TOKEN']})\n"
        "try: urllib.request.urlopen(asked)\nexcept OSError: pass"
    )
    assert reply["status"] == "ok"
    assert "secret_not_for_host" in json.dumps(outputs)
    assert "real-value" not in json.dumps(outputs)
