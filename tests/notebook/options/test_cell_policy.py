"""From options to a policy: a word that is neither a preset nor a file is told apart from a file that is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.notebook.options.cell_options import CellOptions, policy_of, policy_rows
from sandbox_kernel.policy import SandboxPolicy


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("stricct", "--policy 'stricct' is neither a preset nor a file; did you mean strict?"),
        ("zzz", "presets: standard, strict, classroom, data, build, gpu; files end in .toml or .json"),
        ("missing.toml", "policy file 'missing.toml' cannot be read"),
    ],
)
def test_a_policy_that_is_not_there_says_what_is(name: str, hint: str) -> None:
    with pytest.raises(PolicyViolation) as caught:
        policy_of(CellOptions(policy=name))
    assert hint in str(caught.value)


@dataclass(frozen=True)
class Wider(SandboxPolicy):
    camera: bool = False


def test_a_field_that_a_policy_gets_later_is_shown_by_itself() -> None:
    assert ("camera", "True") in policy_rows(Wider(camera=True))
    assert policy_rows(Wider()) == policy_rows(SandboxPolicy())


def test_a_file_without_an_ending_is_still_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").write_text("allowProcessSpawn = true\n")
    monkeypatch.chdir(tmp_path)
    assert policy_of(CellOptions(policy="mine")).process_spawn
