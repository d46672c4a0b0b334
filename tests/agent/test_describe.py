"""What a model is told of the network is what it will meet."""

import pytest

from sandbox_kernel import BackendCapabilities, EnforcedLimits, Language, Limits, SandboxPolicy
from sandbox_kernel.agent.sandbox_tool import describe

NONE = SandboxPolicy()


@pytest.mark.parametrize(
    ("policy", "isolation", "told"),
    [
        (NONE, "process+sandbox", "Network: none."),
        (NONE.allow_domain("a.test"), "process+sandbox", "Network: only a.test, through the proxy variables."),
        (NONE.allow_domain("a.test", 1, 2), "process+sandbox", "Network: only a.test (ports 1, 2), through the proxy"),
        (
            NONE.allow_domain("a.test", 1),
            "wasm",
            "Network: only a.test (ports 1), through fetch in JavaScript and curl",
        ),
        (NONE.allow_network(), "process+sandbox", "Network: public addresses on ports 80 and 443, through the proxy"),
    ],
)
def test_the_network_that_a_policy_allows_is_described(policy: SandboxPolicy, isolation: str, told: str) -> None:
    capabilities = BackendCapabilities(
        supported_languages=(Language.PYTHON,), isolation_class=isolation, enforced_limits=EnforcedLimits()
    )
    assert told in describe(capabilities, (Language.PYTHON,), policy, Limits(), "")
