"""What the command ``host`` imports: a shell that calls in a loop starts an interpreter for each call."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import sandbox_kernel
from sandbox_kernel.guest.functions.calling import as_json, from_json

GUEST = Path(sandbox_kernel.__file__).parent / "guest"
SHOW_MODULES = f"""
import sys
package = sys.modules["sandbox_guest"] = type(sys)("sandbox_guest")
package.__path__ = [{str(GUEST)!r}]
from sandbox_guest.functions import host_command
print(*sys.modules)
"""


def test_the_command_imports_no_module_that_takes_longer_than_its_call() -> None:
    done = subprocess.run([sys.executable, "-E", "-S", "-c", SHOW_MODULES], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "sandbox_guest.functions.caller" in loaded
    assert not loaded & {"json", "re", "enum", "socket", "selectors", "threading", "queue", "base64", "struct", "array"}


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        None,
        True,
        0,
        -(2**80),
        1e300,
        "",
        'ü\n\t"\\\ud800\U0001f600',
        {"a": [1.5, {"b": [None, False]}], "": "x"},
    ],
    ids=repr,
)
def test_messages_are_the_json_of_the_standard_library(value: object) -> None:
    assert as_json(value) == json.dumps(value, separators=(",", ":"))
    assert from_json(json.dumps(value)) == value


def test_what_is_no_json_is_an_ordinary_error() -> None:
    with pytest.raises(TypeError, match="object is no JSON"):
        as_json({"a": object()})
    for text in ("", "no", "[1", '{"a"'):
        with pytest.raises(ValueError):
            from_json(text)
    assert from_json(" \n[1]\n") == [1]
