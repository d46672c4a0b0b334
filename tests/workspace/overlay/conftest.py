"""A project folder as people have them: data, sources, a secret, a repository."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.backends.process import ProcessBackend


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "src").mkdir()
    (folder / "data" / "rows.csv").write_text("a,b\n1,2\n")
    (folder / "data" / "more.csv").write_text("a,b\n3,4\n")
    (folder / "src" / "tool.py").write_text("def tool():\n    return 1\n")
    (folder / "run.sh").write_text("#!/bin/sh\necho run\n")
    (folder / "run.sh").chmod(0o755)
    (folder / ".env").write_text("TOKEN=secret\n")
    (folder / "link").symlink_to("run.sh")
    return folder


@pytest.fixture(params=["layer", "copy"])
def box(request: pytest.FixtureRequest, project: Path) -> Iterator[Sandbox]:
    """A sandbox that works on the project, over a layer and on a private copy."""
    with Sandbox(here=project) as made:
        if request.param == "copy":
            made.backend = ProcessBackend(enforcer="landlock", policy=made.policy)
        yield made
