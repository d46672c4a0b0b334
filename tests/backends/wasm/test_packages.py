import hashlib
import io
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from sandbox_kernel.backends.wasm import packages
from sandbox_kernel.backends.wasm.packages import OFFLINE, fetch_command, find_npm, package_files, take_files
from sandbox_kernel.backends.wasm.store import WasmStore
from sandbox_kernel.backends.wasm.wasm_job import read_file
from sandbox_kernel.errors import BackendUnavailable, EnforcerFailed
from sandbox_kernel.languages.guest_catalogue import Package


def tar_of(**members: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("package/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    return out.getvalue()


def package(archive: bytes, **fields: object) -> Package:
    known = {
        "key": "p", "registry": "npm", "name": "@scope/p", "version": "1.0.0", "licence": "MIT",
        "sha256": hashlib.sha256(archive).hexdigest(), "files": {"m": "package/m"},
    }  # fmt: skip
    return Package(**{**known, **fields})  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> WasmStore:
    return WasmStore(str(tmp_path / "store"))


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "archives"
    folder.mkdir()
    monkeypatch.setenv(OFFLINE, str(folder))
    return folder


def test_an_archive_of_the_offline_folder_is_verified_and_cut_down(store: WasmStore, offline: Path) -> None:
    archive = tar_of(m=b"module", other=b"x" * 1000)
    (offline / "scope-p-1.0.0.tgz").write_bytes(archive)
    entry = package_files(store, package(archive))
    assert Path(entry.file("m")).read_bytes() == b"module"
    assert set(entry.files) == {"m"}
    (offline / "scope-p-1.0.0.tgz").unlink()
    assert Path(package_files(store, package(archive)).file("m")).read_bytes() == b"module"  # it is in the store


def test_another_archive_under_the_same_name_is_refused(store: WasmStore, offline: Path) -> None:
    (offline / "scope-p-1.0.0.tgz").write_bytes(tar_of(m=b"evil"))
    with pytest.raises(BackendUnavailable, match="SHA-256"):
        package_files(store, package(tar_of(m=b"module")))
    assert store.names() == []


def test_an_archive_that_is_missing_offline_is_named(store: WasmStore, offline: Path) -> None:
    with pytest.raises(BackendUnavailable, match=r"does not hold scope-p-1\.0\.0\.tgz"):
        package_files(store, package(b""))


@pytest.mark.parametrize(
    ("data", "member"),
    [
        *((tar_of(m=b"x"), member) for member in ("package/link", "package/none", "package")),
        *((data, "package/m") for data in (b"", b"not an archive", b"PK\x03\x04broken", tar_of(m=b"x" * 5000)[:60])),
    ],
    ids=["link", "missing", "folder", "nothing", "text", "broken zip", "cut tar"],
)
def test_damaged_archives_and_members_that_are_no_files_are_refused(data: bytes, member: str) -> None:
    with pytest.raises(BackendUnavailable, match="does not hold what is expected"):
        take_files(data, {"m": member})


def test_wheels_are_read_too() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as wheel:
        wheel.writestr("pkg/m.wasm", b"module")
    assert take_files(out.getvalue(), {"m": "pkg/m.wasm"}) == {"m": b"module"}


def test_the_clients_run_no_script_of_a_package() -> None:
    npm = fetch_command(package(b""), "/x")
    assert npm[-5:] == ["@scope/p@1.0.0", "--pack-destination", "/x", "--ignore-scripts", "--silent"]
    pip = fetch_command(package(b"", registry="pypi", name="wasi-thing"), "/x")
    assert "--only-binary" in pip and pip[-1] == "wasi-thing==1.0.0"


def test_what_a_client_brings_is_taken_and_one_that_fails_is_quoted(
    store: WasmStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tar_of(m=b"module")
    (tmp_path / "real.tgz").write_bytes(archive)
    fake = tmp_path / "npm"
    fake.write_text(f"#!/bin/sh\ncp {tmp_path}/real.tgz scope-p-1.0.0.tgz\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv(OFFLINE, raising=False)
    assert Path(package_files(store, package(archive)).file("m")).read_bytes() == b"module"
    fake.write_text("#!/bin/sh\necho 'no route to registry' >&2; exit 1\n")
    with pytest.raises(BackendUnavailable, match=f"no route to registry.*{OFFLINE}"):
        package_files(store, package(b""))


def test_without_npm_the_one_of_our_dependencies_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages.shutil, "which", lambda _name: None)
    assert find_npm()[-1].endswith("npm-cli.js")
    monkeypatch.setattr(packages.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(BackendUnavailable, match=r"pip install 'sandbox-kernel\[javascript\]'"):
        find_npm()


def test_what_a_compiler_leaves_is_read_only_if_it_is_a_plain_file_of_its_size(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(b"code")
    (tmp_path / "large").write_bytes(b"x" * 11)
    os.symlink("good", tmp_path / "link")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    folder = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert read_file(folder, "good", 10) == b"code"
        for name in ("large", "link", "pipe", "folder", "missing"):
            with pytest.raises(EnforcerFailed, match=name):
                read_file(folder, name, 10)
    finally:
        os.close(folder)
