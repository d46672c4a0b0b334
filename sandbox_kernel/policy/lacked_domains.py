"""Which domains a run lacked, in their one spelling. Pure; names come from the program, so they are checked."""

from __future__ import annotations

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.model import ExecResult
from sandbox_kernel.model.notes import Wanted, WantedKind
from sandbox_kernel.policy.network_rule import NetworkRule, parse_rule

#: Refusals that a domain, or a domain with this port, would lift.
_LIFTED = ("domain_not_allowed", "port_not_allowed")
_USUAL_PORTS = (80, 443)


def lacked_domains(result: ExecResult) -> tuple[Wanted, ...]:
    """Return each domain that a run was refused or asked for in vain, once."""
    refused = [violation.subject for violation in result.violations if violation.rule in _LIFTED]
    noted = [note.wanted for note in result.notes if note.wanted is not None]
    lacked = [wanted.what for wanted in noted if wanted.kind is WantedKind.DOMAIN]
    return tuple(dict.fromkeys(found for name in (*refused, *lacked) if (found := wanted_domain(name)) is not None))


def wanted_domain(endpoint: str) -> Wanted | None:
    """Return the right to reach an endpoint that a program named; None for what is no domain."""
    try:
        return Wanted(WantedKind.DOMAIN, rule_text(parse_rule(endpoint)))
    except PolicyViolation:
        return None


def rule_text(rule: NetworkRule) -> str:
    """Return a rule as users write it: without a port that is usual."""
    return str(NetworkRule(rule.domain) if rule.ports and rule.ports[0] in _USUAL_PORTS else rule)
