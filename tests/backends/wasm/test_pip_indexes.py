"""Which package indexes ``%pip`` inside WebAssembly asks: those of pip on the host, without its secrets."""

from pathlib import Path

import pytest

from sandbox_kernel.backends.wasm.packages import file_hosts, usual_indexes


@pytest.fixture(autouse=True)
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration file that wins over those of this machine, and no variables of pip."""
    path = tmp_path / "pip.conf"
    for option in ("INDEX_URL", "EXTRA_INDEX_URL", "NO_INDEX"):
        monkeypatch.delenv(f"PIP_{option}", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(path))
    return path


def test_the_configuration_of_pip_names_the_indexes(configured: Path) -> None:
    configured.write_text(
        "[global]\nindex-url = https://first.test/simple\n[install]\nextra-index-url =\n  https://second.test/simple\n"
        "  https://third.test/simple\n"
    )
    assert usual_indexes() == [f"https://{name}.test/simple" for name in ("first", "second", "third")]


def test_the_environment_wins(configured: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured.write_text(
        "[global]\nindex-url = https://first.test/simple\nextra-index-url = https://more.test/simple\n"
    )
    monkeypatch.setenv("PIP_INDEX_URL", "https://other.test/simple")
    assert usual_indexes() == ["https://other.test/simple", "https://more.test/simple"]
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert usual_indexes() == []


def test_an_index_with_a_password_and_a_file_are_not_told(configured: Path) -> None:
    configured.write_text(
        "[global]\nindex-url = https://me:secret@first.test/simple\n"
        "extra-index-url = https://token@second.test/simple file:///srv/simple https://[broken https://open.test/simple\n"
    )
    assert usual_indexes() == ["https://open.test/simple"]
    configured.write_bytes(b"index-url = \xff no section\n")  # damaged
    assert usual_indexes() == []


def test_the_default_is_the_one_of_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    index = pytest.importorskip("pip._internal.models.index")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    assert usual_indexes() == [index.PyPI.simple_url]


def test_files_of_the_index_that_pip_itself_has_come_from_the_host_that_pip_names() -> None:
    from pip._internal.models.index import PyPI

    assert file_hosts(["127.0.0.1", PyPI.netloc]) == [PyPI.file_storage_domain]
    assert file_hosts(["127.0.0.1"]) == []
