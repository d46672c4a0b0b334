"""The hook of docs/deploy.md for JupyterHub: which limits a user's server gets. ``make test-hub`` runs a real hub."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs" / "deploy.md"


def spawned(name, *groups):
    """What the hook sets for a user: the limits for the provisioner and those for the Sandbox kernel."""
    (recipe,) = re.findall(r"```python\n(# jupyterhub_config\.py\n.*?)```", PAGE.read_text(), re.DOTALL)
    config = SimpleNamespace(Spawner=SimpleNamespace())
    exec(recipe, {"c": config})
    user = SimpleNamespace(name=name, groups=[SimpleNamespace(name=group) for group in groups])
    spawner = SimpleNamespace(user=user, environment={}, args=[])
    config.Spawner.pre_spawn_hook(spawner)
    return spawner


@pytest.mark.parametrize(
    ("name", "groups", "memory", "timeout"),
    [
        ("alice", (), "512M", "60s"),
        ("alice", ("unknown",), "512M", "60s"),
        ("bob", ("unknown", "teachers"), "2G", "1h"),
        ("carol", ("teachers",), "4G", "1h"),
    ],
)
def test_a_user_has_own_limits_else_those_of_a_group_else_those_for_everybody(name, groups, memory, timeout):
    spawner = spawned(name, *groups)
    assert spawner.args == [f"--SandboxProvisioner.memory={memory}", f"--SandboxProvisioner.timeout={timeout}"]
    assert spawner.environment["SANDBOX_KERNEL_OPTIONS"] == f"--memory {memory} --timeout {timeout}"
    assert spawner.environment["JUPYTER_DEFAULT_PROVISIONER_NAME"] == "sandbox"
