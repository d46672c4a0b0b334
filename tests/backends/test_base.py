"""``validate_policy`` fails closed: what a backend would not enforce is refused before anything runs."""

from dataclasses import replace

import pytest

from sandbox_kernel import (
    BackendCapabilities,
    EnforcedLimits,
    Enforcement,
    Language,
    PolicyViolation,
    SandboxPolicy,
    validate_policy,
)

YES, NO = Enforcement(True, "a wall", "seen"), Enforcement(False, "none", "it was let through")
NAMES = [name for name, _ in EnforcedLimits().items()]
STRICT = SandboxPolicy()


def capable(*missing: str) -> BackendCapabilities:
    limits = EnforcedLimits(**{name: NO if name in missing else YES for name in NAMES})
    return BackendCapabilities(supported_languages=(Language.PYTHON,), isolation_class="test", enforced_limits=limits)


def test_validate_policy_passes_with_full_caps_and_strict_policy() -> None:
    validate_policy(STRICT, capable())


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ("network_isolation", "network"),
        ("filesystem_read_isolation", "reading outside"),
        ("filesystem_write_isolation", "writing outside"),
        ("environment_isolation", "the environment"),
        ("syscall_filter", "starting processes"),
        ("timeout", "time"),
    ],
)
def test_validate_policy_rejects_each_restriction_that_is_not_enforced(missing: str, named: str) -> None:
    with pytest.raises(PolicyViolation, match=rf"{named} \(it was let through\)"):
        validate_policy(STRICT, capable(missing))


def test_validate_policy_allows_enabled_network_even_when_unenforced() -> None:
    validate_policy(STRICT.allow_network(), capable("network_isolation"))
    with pytest.raises(PolicyViolation, match="network"):
        validate_policy(STRICT.allow_domain("example.org"), capable("network_isolation"))


def test_validate_policy_allows_spawning_even_when_unfiltered() -> None:
    validate_policy(STRICT.allow_process_spawn(), capable("syscall_filter"))


def test_validate_policy_rejects_weak_caps_with_strict_policy() -> None:
    weak = replace(capable(), enforced_limits=EnforcedLimits())
    with pytest.raises(PolicyViolation) as refused:
        validate_policy(STRICT, weak)
    assert str(refused.value).count("no enforcer is active") == 6
