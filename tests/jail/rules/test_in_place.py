from __future__ import annotations

from pathlib import Path

import pytest

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.jail.rules.landlock import in_place_paths
from sandbox_kernel.policy import Grant, SandboxPolicy, resolve_grants


def test_a_linked_path_is_in_place_and_named_once(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    policy = SandboxPolicy().allow_read(link).allow_read_write(tmp_path)
    source = tmp_path.resolve()
    assert in_place_paths(resolve_grants(policy), "landlock") == ((str(source / "real"),), (str(source),))


@pytest.mark.parametrize(("writable", "method"), [(False, "allow_read"), (True, "allow_read_write")])
def test_a_mount_at_another_place_is_refused_with_the_way_to_go(tmp_path: Path, writable: bool, method: str) -> None:
    grant = Grant(str(tmp_path.resolve()), "/data", writable)
    with pytest.raises(PolicyViolation, match=rf"shown at '/data'.*'landlock' cannot mount.*policy\.{method}\("):
        in_place_paths([grant], "landlock")
