"""One sandbox for all tests here, and the rule for toolchains that a machine lacks."""

import os
from collections.abc import Callable, Iterator

import pytest

from sandbox_kernel import Language, Sandbox
from sandbox_kernel.backends.process import ProcessConfig
from sandbox_kernel.languages.recipe import availability


@pytest.fixture(scope="session")
def box() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def needs() -> Callable[[str], None]:
    """Skip where a toolchain is missing, unless this machine promised to have all; the two largest are never asked."""

    def check(name: str) -> None:
        found = availability(ProcessConfig(), Language.parse(name))
        may_miss = os.environ.get("SANDBOX_KERNEL_REQUIRE_ALL") != "1" or name in ("go", "r")
        if not found.available and may_miss:
            pytest.skip(f"{name}: {found.reason}")
        assert found.available, f"{name}: {found.reason}; {found.remedy}"

    return check


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither use nor fill the cache of the user who runs them; Zig's libraries are too dear to build again."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setattr("sandbox_kernel.backends.process.default_folder", lambda: str(folder / "compiled"))
        yield
