"""Makes a policy from options that commands and wrapped kernels share: ``--policy``, ``--mount``, ``--allow-net``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.policy.gpu import parse_gpu
from sandbox_kernel.policy.network_rule import parse_rule
from sandbox_kernel.policy.sandbox_policy import PRESETS, SandboxPolicy, parse_mount


def make_policy(
    name: str | None, mounts: Sequence[str], domains: Sequence[str], gpu: str | None = None
) -> SandboxPolicy:
    """Return the policy that the options describe."""
    if name is None:
        policy = SandboxPolicy.preset("standard")
    elif name in PRESETS:
        policy = SandboxPolicy.preset(name)
    else:
        try:
            policy = SandboxPolicy.load(name)
        except PolicyViolation as error:
            raise PolicyViolation(
                f"{error}; --policy takes a .toml or .json file, or one of: {', '.join(PRESETS)}"
            ) from None
    for mount in mounts:
        try:
            shown = parse_mount(mount)
        except PolicyViolation as error:
            raise InvalidRequest(f"--mount {mount!r}: {error}; give HOST:GUEST or HOST:GUEST:rw") from None
        policy = policy.mount(shown.host, shown.guest, shown.writable)
    if name is not None and name not in PRESETS:
        from sandbox_kernel.policy.document import check_file_place

        check_file_place(name, policy)
    for rule in domains:
        try:
            read = parse_rule(rule)
        except PolicyViolation as error:
            raise InvalidRequest(f"--allow-net {error}") from None
        policy = policy.allow_domain(read.domain, *read.ports)
    if gpu is not None:
        try:
            policy = replace(policy, gpu=parse_gpu(gpu))
        except PolicyViolation as error:
            raise InvalidRequest(f"--gpu {error}") from None
    return policy
