"""Which walls are chosen under the restrictions of containers. ``containers.py`` measures the whole table."""

import os

import pytest

from sandbox_kernel.jail.rules.landlock import landlock_abi
from tests.jail.containers import Container, before, docker_profile
from tests.jail.degraded import run_without

CHOSEN = "from sandbox_kernel import get_enforcer; print(get_enforcer().name)"


pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the restrictions of a container"),
    pytest.mark.skipif(landlock_abi() < 1, reason="this kernel has no Landlock"),
]


@pytest.mark.parametrize(
    ("container", "walls"),
    [
        pytest.param(Container(flags="none"), "landlock", id="docker's-own-profile"),
        # A /proc with covered paths lets nobody mount another one, whatever calls are allowed.
        pytest.param(Container(flags="", profile=False, privileged=True), "landlock", id="covered-paths-of-proc"),
        pytest.param(
            Container(flags="", profile=False, privileged=True, masked=False), "bubblewrap", id="no-restriction"
        ),
    ],
)
@pytest.mark.one_case
def test_a_container_gets_the_walls_that_its_flags_allow(container, walls):
    done = run_without(CHOSEN, *((docker_profile(),) if container.profile else ()), before=before(container))
    assert done.stdout.strip() == walls, done.stderr
