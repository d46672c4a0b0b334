"""What a program may use. Denies everything by default; each method returns a new policy that allows one thing more.

A policy is plain data. It keeps paths as the user wrote them; they are opened when the policy is given to a sandbox
(``workspace/given_grants.py``), so a policy can be written on one machine and used on another.
"""

from sandbox_kernel.policy.network_rule import NetworkRule
from sandbox_kernel.policy.sandbox_policy import (
    PRESETS,
    AccessMode,
    AllowedPath,
    Grant,
    Mount,
    SandboxPolicy,
    check_policy,
    resolve_grants,
)

__all__ = [
    "PRESETS",
    "AccessMode",
    "AllowedPath",
    "Grant",
    "Mount",
    "NetworkRule",
    "SandboxPolicy",
    "check_policy",
    "resolve_grants",
]
