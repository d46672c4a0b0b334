"""What a program reads about its control group says nothing about the host."""

import asyncio
import os
import re

import pytest

from sandbox_kernel import ExecRequest, Sandbox
from sandbox_kernel.backends.process import ProcessBackend, ProcessConfig
from tests.jail.walls_and_groups import TIERS, Tier

pytestmark = pytest.mark.usefixtures("nothing_left")

READ = "print(open('/proc/self/cgroup').read())"


def numbers(text: str) -> set[int]:
    """The numbers between other letters, without those that number the lines."""
    paths = [line.split(":", 2)[2] for line in text.split()]
    return {int(word) for path in paths for word in re.split(r"[^0-9a-z]", path) if word.isdigit()}


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.one_case
def test_the_name_of_a_group_does_not_say_who_the_host_is(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    tier.enter(monkeypatch)
    backend = ProcessBackend(ProcessConfig(pool_size=0), tier.enforcer)
    result = asyncio.run(backend.execute(ExecRequest(language="python", code=READ, timeout=20)))
    assert result.stdout.strip(), result
    assert os.getpid() not in numbers(result.stdout), result.stdout


def test_nor_does_that_of_a_fork_of_a_template() -> None:
    with Sandbox() as box:
        results = [box.run(READ) for _ in range(4)]
    assert all(result.ok and os.getpid() not in numbers(result.stdout) for result in results)
