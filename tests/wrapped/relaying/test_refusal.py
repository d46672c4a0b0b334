"""A kernel that does not come up says why in the notebook, in every cell, and ends when the front end asks."""

from __future__ import annotations

import json

import pytest


@pytest.mark.slow
def test_the_cell_names_what_the_program_said_and_the_line_that_shows_a_file(jupyter_folder, wrap, start):
    place = jupyter_folder / "kernels" / "broken"
    place.mkdir(parents=True)
    content = {
        "argv": ["python3", "-m", "no_such_module_here", "{connection_file}"],
        "display_name": "broken",
        "language": "python",
    }
    (place / "kernel.json").write_text(json.dumps(content))
    kernel = start(wrap("broken"))
    for _ in range(2):
        reply, outputs = kernel.run("1 + 1")
        assert reply["ename"] == outputs[-1][1]["ename"] == "KernelDidNotStart"
    assert "ended itself with exit code 1" in reply["evalue"]
    assert "No module named no_such_module_here" in reply["evalue"]
    assert "sandbox-kernel wrap --mount PATH:PATH" in reply["evalue"]
    assert outputs[-1][1]["traceback"][0].startswith("▣ KernelDidNotStart: ")
    kernel.km.shutdown_kernel()
    assert not kernel.km.is_alive()


def test_a_policy_file_that_is_gone_since_is_named(wrap, start, tmp_path):
    policy = tmp_path / "rules.toml"
    policy.write_text("allowNetwork = false\n")
    name = wrap("python3", "--policy", str(policy), as_name="policy-gone")
    policy.unlink()
    reply, _ = start(name).run("1")
    assert reply["ename"] == "KernelDidNotStart"
    assert str(policy) in reply["evalue"]
