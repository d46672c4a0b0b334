"""Where a run goes, and what its receipt says of it; nothing is run here."""

import pytest

from sandbox_kernel import ExecRequest, InvalidRequest, Language, ProcessConfig, SandboxPolicy
from sandbox_kernel.backends.choice import BACKENDS, Backends, known_backend
from sandbox_kernel.net.egress import Egress

WASM = '(module (func (export "_start")))'


def backends(default: str = "auto") -> Backends:
    return Backends(default, SandboxPolicy.preset("standard"), Egress(), ProcessConfig(pool_size=0))


def request(language: str, code: str = "1") -> ExecRequest:
    return ExecRequest(language=Language.parse(language), code=code, timeout=5)


def test_a_run_goes_where_it_was_sent_and_else_where_its_language_runs() -> None:
    own = backends()
    assert own.choose(request("python"), None) is own.process
    assert own.choose(request("wasm", WASM), None) is own.wasm()
    assert own.choose(request("javascript"), "wasm") is own.wasm()
    assert backends("wasm").choose(request("javascript"), None).name == "wasm"


def test_another_python_or_checked_types_are_a_backend_of_their_own() -> None:
    own = backends()
    other = own.choose(request("python"), None, python="/opt/other/python")
    assert other is not own.process
    assert other.config.python_path == "/opt/other/python"  # type: ignore[union-attr]
    assert own.choose(request("typescript"), None, check=True).config.check_types  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("language", "options", "told"),
    [
        ("python", {"check": True}, "check is for typescript"),
        ("typescript", {"backend": "wasm", "check": True}, "types are checked by deno"),
        ("command", {"python": "python3.12"}, "is for python, not for command"),
        ("python", {"backend": "wasm", "python": "python3.12"}, "an interpreter of the host"),
        ("python", {"backend": "cloud"}, "unknown backend 'cloud'"),
    ],
)
def test_what_does_not_go_together_is_refused(language: str, options: dict[str, object], told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        backends().choose(request(language), **{"backend": None, **options})  # type: ignore[arg-type]


def test_only_a_choice_that_nobody_made_is_explained() -> None:
    assert "took wasm" in backends().why(Language.WASM, None)
    assert "took process" in backends().why(Language.RUST, "auto")
    assert backends("process").why(Language.RUST, None) == backends().why(Language.RUST, "wasm") == ""


def test_the_known_backends_are_known() -> None:
    assert [known_backend(name) for name in BACKENDS] == list(BACKENDS)
