"""What a program may use. Denies everything by default; each method returns a new policy that allows one thing more.

A policy is plain data. It keeps paths as the user wrote them; they are opened when the policy is given to a sandbox
(``workspace/given_grants.py``), so a policy can be written on one machine and used on another.
"""

from sandbox_kernel.policy.network_rule import NetworkRule as NetworkRule
from sandbox_kernel.policy.sandbox_policy import (
    PRESETS as PRESETS,
    AccessMode as AccessMode,
    AllowedPath as AllowedPath,
    Grant as Grant,
    Mount as Mount,
    SandboxPolicy as SandboxPolicy,
    check_policy as check_policy,
    resolve_grants as resolve_grants,
)
