import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel.backends.wasm.store import SEAL, StoreEntry, WasmStore
from sandbox_kernel.errors import BackendUnavailable


@pytest.fixture
def store(tmp_path: Path) -> WasmStore:
    return WasmStore(str(tmp_path / "store"))


def test_what_was_added_is_found_again_by_this_and_by_another_process(store: WasmStore) -> None:
    made = store.add("cell-abc", {"module.cwasm": b"native", "notes.txt": b""})
    assert Path(made.file("module.cwasm")).read_bytes() == b"native"
    again = WasmStore(store.folder).find("cell-abc")
    assert again is not None and again.files == made.files
    assert store.names() == ["cell-abc"]


def test_what_was_never_added_is_absent(store: WasmStore) -> None:
    assert store.find("cell-abc") is None


def test_the_folder_and_its_key_are_private(store: WasmStore) -> None:
    assert stat.S_IMODE(os.stat(store.folder).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(f"{store.folder}/key").st_mode) == 0o600


def damage_seal(entry: StoreEntry) -> None:
    path = Path(entry.path) / SEAL
    document = json.loads(path.read_text())
    document["seal"] = "0" * 64
    path.write_text(json.dumps(document))


def damage_by_a_link(entry: StoreEntry) -> None:
    target = Path(entry.path).parent.parent / "elsewhere"
    target.write_bytes(Path(entry.file("a/m")).read_bytes())
    os.unlink(entry.file("a/m"))
    os.symlink(target, entry.file("a/m"))


def damage_by_a_link_to_a_folder(entry: StoreEntry) -> None:
    target = Path(entry.path).parent.parent / "elsewhere"
    os.rename(f"{entry.path}/a", target)
    os.symlink(target, f"{entry.path}/a")


DAMAGES: dict[str, Callable[[StoreEntry], object]] = {
    "other content": lambda entry: Path(entry.file("a/m")).write_bytes(b"other!"),
    "another seal": damage_seal,
    "a cut file": lambda entry: os.truncate(entry.file("a/m"), 1),
    "a file more": lambda entry: (Path(entry.path) / "more").write_bytes(b""),
    "a file less": lambda entry: os.unlink(entry.file("a/m")),
    "a link": damage_by_a_link,
    "a link to a folder": damage_by_a_link_to_a_folder,
    "a hard link": lambda entry: os.link(entry.file("a/m"), Path(entry.path).parent.parent / "second-name"),
    "nonsense": lambda entry: (Path(entry.path) / SEAL).write_bytes(b"[" * 100_000),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("fresh", [True, False], ids=["seen by a new process", "seen by the same process"])
def test_a_damaged_entry_is_removed_and_can_be_made_again(store: WasmStore, damage: str, fresh: bool) -> None:
    DAMAGES[damage](store.add("cell-abc", {"a/m": b"native"}))
    looking = WasmStore(store.folder) if fresh else store
    assert looking.find("cell-abc") is None
    assert looking.names() == []
    assert Path(looking.add("cell-abc", {"a/m": b"native"}).file("a/m")).read_bytes() == b"native"


def test_an_entry_of_another_store_is_foreign(store: WasmStore, tmp_path: Path) -> None:
    other = WasmStore(str(tmp_path / "other"))
    made = other.add("cell-abc", {"m": b"native"})
    subprocess.run(["cp", "-a", made.path, store.folder], check=True)
    assert store.find("cell-abc") is None


def test_an_entry_under_another_name_is_foreign(store: WasmStore) -> None:
    made = store.add("cell-abc", {"m": b"native"})
    os.rename(made.path, f"{store.folder}/cell-def")
    assert store.find("cell-def") is None


@pytest.mark.parametrize(
    ("path", "words"),
    [("open", "chmod 700"), ("link", "must be your own folder"), ("file/store", "SANDBOX_KERNEL_CACHE")],
    ids=["others can enter it", "a link", "it cannot be made"],
)
def test_a_folder_that_is_not_ours_alone_is_refused_with_what_to_do(tmp_path: Path, path: str, words: str) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("")
    with pytest.raises(BackendUnavailable, match=words):
        WasmStore(str(tmp_path / path))


@pytest.mark.parametrize("damage", [lambda key: key.chmod(0o644), lambda key: key.write_bytes(b"short")])
def test_a_key_that_is_damaged_or_that_others_can_read_is_replaced_with_what_it_sealed(
    store: WasmStore, damage
) -> None:
    store.add("cell-abc", {"m": b"native"})
    damage(Path(store.folder) / "key")
    again = WasmStore(store.folder)
    assert again.find("cell-abc") is None
    assert Path(again.add("cell-abc", {"m": b"native"}).file("m")).read_bytes() == b"native"
    assert stat.S_IMODE(os.stat(f"{store.folder}/key").st_mode) == 0o600


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "key", "lock", "a\0b", "x-" * 300])
def test_names_that_could_leave_the_store_are_refused(store: WasmStore, name: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        store.find(name)


@pytest.mark.parametrize("name", ["", "../x", "a/../../x", "/x", "a//b", "a\0b", SEAL])
def test_files_that_could_leave_their_entry_are_refused(store: WasmStore, name: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        store.add("cell-abc", {name: b""})
    assert sorted(os.listdir(store.folder)) == ["key", "lock"]


def test_many_processes_that_make_the_same_entries_agree(store: WasmStore) -> None:
    program = (
        "import sys; from sandbox_kernel.backends.wasm.store import WasmStore\n"
        "store = WasmStore(sys.argv[1])\n"
        "for i in range(30):\n"
        "    assert open(store.add(f'cell-{i}', {'m': b'%d' % i}).file('m'), 'rb').read() == b'%d' % i\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", program, store.folder]) for _ in range(3)]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    assert len(store.names()) == 30
    assert all(store.find(key) is not None for key in store.names())
    assert [name for name in os.listdir(store.folder) if name.startswith(".")] == []


def test_threads_that_open_a_new_store_share_one_key(tmp_path: Path) -> None:
    stores: list[WasmStore] = []
    threads = [threading.Thread(target=lambda: stores.append(WasmStore(str(tmp_path / "s")))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = stores[0].add("cell-abc", {"m": b"x"})
    assert all(other.find("cell-abc") is not None for other in stores)
    assert Path(made.file("m")).read_bytes() == b"x"


def test_pruning_takes_the_least_recently_used_of_one_kind(store: WasmStore) -> None:
    for index in range(4):
        store.add(f"cell-{index}", {"m": bytes(1000)})
        os.utime(f"{store.folder}/cell-{index}", (index, index))
    store.add("guest-python", {"m": bytes(5000)})
    store.find("cell-0")
    store.prune("cell-", 2600)
    assert store.names() == ["cell-0", "cell-3", "guest-python"]


def test_a_store_below_a_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """Its owner could rename ours away while a verified entry is being mounted."""
    shared = tmp_path / "shared"
    shared.mkdir()
    WasmStore(str(shared / "store"))
    shared.chmod(0o777)
    with pytest.raises(BackendUnavailable, match=r"no other user can enter or replace.*can be written by everybody"):
        WasmStore(str(shared / "store"))


def test_folders_of_the_store_are_open_to_nobody_even_without_a_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        WasmStore(str(tmp_path / "a" / "b" / "store"))
    finally:
        os.umask(before)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b", "a/b/store")] == [0o700] * 3
