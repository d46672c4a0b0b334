"""A policy is deny-all until it is told otherwise, keeps what it was told in order, and survives JSON and TOML."""

import json
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.policy import (
    PRESETS,
    AccessMode,
    AllowedPath,
    Grant,
    Mount,
    NetworkRule,
    SandboxPolicy,
    resolve_grants,
)
from sandbox_kernel.policy.sandbox_policy import parse_mount

_text = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), min_size=1, max_size=20)
_paths = _text.map(lambda tail: f"/data/{tail}")
_domains = st.from_regex(r"(\*\.)?[a-z][a-z0-9]{0,10}(\.[a-z]{2,5}){1,2}", fullmatch=True)
_ports = st.lists(st.integers(1, 65535), max_size=3)
_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), _paths),
        st.tuples(st.just("write"), _paths),
        st.tuples(st.just("domain"), _domains, _ports),
        st.tuples(st.just("network")),
        st.tuples(st.just("spawn"), st.booleans()),
        st.tuples(st.just("env"), _names, _text),
        st.tuples(st.just("mount"), _paths, st.sampled_from(["/data", "/data/x", "/opt/y"]), st.booleans()),
    ),
    max_size=12,
)


def build(steps: list[tuple[object, ...]]) -> SandboxPolicy:
    """Carry out what hypothesis chose."""
    policy = SandboxPolicy()
    for kind, *args in steps:
        match kind, args:
            case "read", [str(path)]:
                policy = policy.allow_read(path)
            case "write", [str(path)]:
                policy = policy.allow_read_write(path)
            case "domain", [str(domain), list(ports)]:
                policy = policy.allow_domain(domain, *ports)
            case "network", []:
                policy = policy.allow_network()
            case "spawn", [bool(allowed)]:
                policy = policy.allow_process_spawn(allowed)
            case "env", [str(name), str(value)]:
                policy = policy.with_env(name, value)
            case "mount", [str(host), str(guest), bool(writable)]:
                policy = policy.mount(host, guest, writable)
            case _:
                raise AssertionError(kind)
    return policy


def test_a_new_policy_allows_nothing_at_all() -> None:
    policy = SandboxPolicy()
    assert (policy.allowed_paths, policy.network_rules, policy.mounts, dict(policy.env)) == ((), (), (), {})
    assert not policy.network
    assert not policy.process_spawn


@given(_steps)
@pytest.mark.slow
def test_a_policy_holds_what_it_was_told_in_order_also_after_json_and_pickling(steps: list[tuple[object, ...]]) -> None:
    policy = build(steps)
    modes = {"read": AccessMode.READ_ONLY, "write": AccessMode.READ_WRITE}
    assert policy.allowed_paths == tuple(
        AllowedPath(str(step[1]), modes[str(step[0])]) for step in steps if step[0] in modes
    )
    assert [rule.domain for rule in policy.network_rules] == [step[1] for step in steps if step[0] == "domain"]
    assert [list(rule.ports) for rule in policy.network_rules] == [step[2] for step in steps if step[0] == "domain"]
    assert policy.network == any(step[0] == "network" for step in steps)
    spawns = [step[1] for step in steps if step[0] == "spawn"]
    assert policy.process_spawn == bool(spawns and spawns[-1])
    assert dict(policy.env) == {step[1]: step[2] for step in steps if step[0] == "env"}
    assert [(m.host, m.guest, m.writable) for m in policy.mounts] == [s[1:] for s in steps if s[0] == "mount"]
    text, back = policy.to_json(), pickle.loads(pickle.dumps(policy))
    assert SandboxPolicy.from_json(text) == SandboxPolicy.from_json(text.encode()) == policy == back
    assert hash(back) == hash(policy) == hash(build(steps))
    document = json.loads(text)
    assert list(document) == ["allowedPaths", "allowNetwork", "networkRules", "allowProcessSpawn", "env", "mounts"]
    rows = [*document["allowedPaths"], *document["networkRules"], *document["mounts"]]
    assert not any("_" in key for row in rows for key in row)


def test_each_step_makes_a_new_policy_and_leaves_the_old_one_alone() -> None:
    before = SandboxPolicy()
    after = before.allow_read("/a").with_env("A", "1").allow_network().allow_process_spawn()
    assert before == SandboxPolicy()
    assert after != before
    with pytest.raises(AttributeError):
        after.network = False  # type: ignore[misc]
    with pytest.raises(TypeError):
        after.env["A"] = "2"  # type: ignore[index]


# Presets


def test_the_presets_differ_in_what_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here, spawn = str(tmp_path), SandboxPolicy().allow_process_spawn()
    assert {name: SandboxPolicy.preset(name) for name in PRESETS} == {
        "strict": SandboxPolicy(),
        "standard": spawn,
        "classroom": spawn,
        "data": spawn.allow_read(here),
        "build": spawn.allow_read_write(here),
        "gpu": spawn.allow_gpu(),
    }


# What a method refuses


def test_paths_may_be_path_objects_and_are_kept_as_written() -> None:
    assert SandboxPolicy().allow_read(Path("data/../x")).allowed_paths[0].path == "data/../x"
    assert SandboxPolicy().allow_read("~/x").allowed_paths[0].path == "~/x"


_PLACES = [
    "", "data", "../x", "/a/../etc", "/proc", "/box", "/usr/", "/tmp", "//proc", "/dev/.", "/x\0", None, "/proc/1",
    "//proc/sys/kernel", "/dev/shm", "/guest", "/guest/gate.py", "/cell/x",
]  # fmt: skip
_NO_DOMAINS = [
    "", ".", "*", "*.", "a b", "http://x.org", "x.org/path", "x.org:80", "user@x.org", "a..b", "-a.org", "a.*.org",
    "a" * 64 + ".org", "x." * 130 + "org", "[::1", "127.1", "x\0.org", "\ud800.org", "xn--\u00e9.org/..", 5, None,
]  # fmt: skip
#: A step of a policy, what it does not take, and what it says.
REFUSED = [
    (lambda policy, guest: policy.mount("/data", guest), _PLACES, "mount target"),
    (lambda policy, domain: policy.allow_domain(domain), _NO_DOMAINS, "is not a domain name"),
    (lambda policy, port: policy.allow_domain("a.org", port), [0, -1, 65536, True, "443", 1.5, None], "from 1 to 65535"),
    (lambda policy, name: policy.preset(name), ["", "Standard", "open", "../standard"], "standard, strict, classroom, data"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("step", "value", "says"), [(step, value, says) for step, values, says in REFUSED for value in values]
)
def test_what_a_step_does_not_take_is_refused_with_what_it_takes(
    step: Callable[[SandboxPolicy, object], object], value: object, says: str
) -> None:
    with pytest.raises(PolicyViolation, match=says):
        step(SandboxPolicy(), value)


def test_a_mount_at_a_place_that_the_system_does_not_have_is_refused_in_time(tmp_path: Path) -> None:
    with pytest.raises(PolicyViolation, match=r"nothing can be mounted at '/usr/none/such'.*'/data'"):
        resolve_grants(SandboxPolicy().mount(str(tmp_path), "/usr/none/such"))
    assert resolve_grants(SandboxPolicy().mount(str(tmp_path), "/usr/share"))[0].target == "/usr/share"
    assert resolve_grants(SandboxPolicy().mount(str(tmp_path), "/usr/none/such"), root=True)  # WebAssembly


@pytest.mark.parametrize("guest", ["/box/data", "/tmp/data", "/data", "/home/me", "/mnt/a/b", "/process", "/etc/hosts"])
def test_a_mount_into_the_work_folder_or_a_new_place_is_taken(guest: str) -> None:
    assert SandboxPolicy().mount("/data", guest).mounts == (Mount("/data", guest, False),)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("Example.ORG.", "example.org"), (" example.org ", "example.org"), ("*.Example.org", "*.example.org"),
        ("bücher.example", "xn--bcher-kva.example"), ("faß.de", "xn--fa-hia.de"), ("localhost", "localhost"),
    ],
)  # fmt: skip
def test_a_domain_is_kept_in_its_one_form(written: str, kept: str) -> None:
    assert SandboxPolicy().allow_domain(written, 443).network_rules == (NetworkRule(kept, (443,)),)


def test_loader_names_may_be_set_by_the_policy_and_wrong_names_may_not() -> None:
    assert SandboxPolicy().with_env("LD_PRELOAD", "/x.so").env["LD_PRELOAD"] == "/x.so"
    with pytest.raises(InvalidRequest, match="environment name"):
        SandboxPolicy().with_env("A=B", "1")


# Documents


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "Expected `object`, got `array`"),
        ('{"allowedPath": []}', "unknown field `allowedPath`; its keys are allowedPaths"),
        ('{"allowNetwork": 1}', "Expected `bool`, got `int` - at `$.allowNetwork`"),
        ('{"allowProcessSpawn": "yes"}', "Expected `bool`, got `str` - at `$.allowProcessSpawn`"),
        ('{"allowedPaths": [{"path": "/a", "mode": "rw"}]}', "Invalid enum value 'rw' - at `$.allowedPaths[0].mode`"),
        ('{"allowedPaths": [{"mode": "readOnly"}]}', "missing required field `path` - at `$.allowedPaths[0]`"),
        ('{"allowedPaths": [{"path": "/a", "writable": true}]}', "unknown field `writable` - at `$.allowedPaths[0]`"),
        ('{"networkRules": [{"domain": "a b"}]}', "not a domain name"),
        ('{"networkRules": [{"domain": "example.org", "ports": [0]}]}', "from 1 to 65535"),
        ('{"mounts": [{"host": "/a", "guest": "/proc"}]}', "mount target"),
        ('{"env": {"A=B": "1"}}', "environment name"),
        ('{"env": {"A": 1}}', "Expected `str`, got `int`"),
        ('{"env": {"A": "\\ud800"}}', "lone surrogate"),
        ('{"allowNetwork": false, "allowNetwork": true}', "the key 'allowNetwork' stands twice"),
        (None, "policy is not JSON"),
        (5, "policy is not JSON"),
        ({}, "policy is not JSON"),
    ],
)
def test_a_wrong_policy_document_is_refused_with_the_reason(text: Any, says: str) -> None:
    with pytest.raises(PolicyViolation, match=re.escape(says)):
        SandboxPolicy.from_json(text)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(
    st.sampled_from(["allowedPaths", "networkRules", "env", "mounts", "path", "mode", "domain", "ports", "host"]), v,
)))  # fmt: skip
@pytest.mark.slow
def test_any_json_at_all_is_a_policy_or_a_policy_violation(document: object) -> None:
    try:
        SandboxPolicy.from_json(json.dumps(document))
    except PolicyViolation:
        return


def test_a_document_of_many_rows_is_checked_as_a_whole_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, check = [0], SandboxPolicy.__post_init__
    monkeypatch.setattr(
        SandboxPolicy, "__post_init__", lambda own: (made.__setitem__(0, made[0] + len(own.env)), check(own))[1]
    )
    rows = {"env": {f"A{number}": "" for number in range(500)}}
    assert len(SandboxPolicy.from_json(json.dumps(rows)).env) == 500
    assert made[0] <= 5 * 500


def test_a_policy_file_may_be_toml_or_json(tmp_path: Path) -> None:
    wanted = (
        SandboxPolicy().allow_read("/data").allow_domain("example.org", 443).with_env("A", "é").allow_process_spawn()
    )
    (tmp_path / "policy.json").write_text(wanted.to_json())
    (tmp_path / "policy.toml").write_text(
        'allowProcessSpawn = true\n[[allowedPaths]]\npath = "/data"\n'
        '[[networkRules]]\ndomain = "example.org"\nports = [443]\n[env]\nA = "é"\n',
        encoding="utf-8",
    )
    assert SandboxPolicy.load(tmp_path / "policy.json") == wanted
    assert SandboxPolicy.load(str(tmp_path / "policy.toml")) == wanted


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("p.toml", b"a = [", "not TOML"),
        ("p.toml", b"\xff\xfe", "not TOML"),
        ("p.toml", b".".join([b"a"] * 202) + b"=1", "more than 200 dots in a line"),
        ("p.toml", b".".join([b"a"] * 201) + b"=1", "unknown field `a`"),
        ("p.toml", b"when = 2020-01-01", "unknown field `when`"),
        ("p.json", b"\xff\xfe{", "not JSON"),
    ],
)
def test_a_broken_policy_file_is_refused_by_its_format(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PolicyViolation, match=says):
        SandboxPolicy.load(tmp_path / name)


def test_a_policy_file_that_is_missing_or_a_folder_is_refused_by_its_name(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(PolicyViolation, match=re.escape(repr(str(path)))):
            SandboxPolicy.load(path)


# Resolving


def test_a_plain_path_is_granted_where_it_is(tmp_path: Path) -> None:
    real = os.path.realpath(tmp_path)
    assert resolve_grants(SandboxPolicy().allow_read(real).allow_read(real)) == (Grant(real, real, False),)
    assert resolve_grants(SandboxPolicy().allow_read_write(real)) == (Grant(real, real, True),)


def test_a_linked_path_is_granted_where_it_was_written_and_where_it_really_is(tmp_path: Path) -> None:
    real = Path(os.path.realpath(tmp_path)) / "real"
    link = real.parent / "link"
    real.mkdir()
    link.symlink_to(real)
    assert resolve_grants(SandboxPolicy().allow_read(link)) == (
        Grant(str(real), str(link), False),
        Grant(str(real), str(real), False),
    )


@pytest.mark.parametrize("written", ["data", "~/data"])
def test_a_relative_or_home_path_is_granted_at_its_absolute_place(
    written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "data").mkdir()
    real = os.path.realpath(tmp_path / "data")
    assert Grant(real, real, False) in resolve_grants(SandboxPolicy().allow_read(written))


def test_a_path_that_does_not_resolve_is_refused_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("missing", "dangling", "loop"):
        for policy in (SandboxPolicy().allow_read(tmp_path / name), SandboxPolicy().mount(tmp_path / name, "/data")):
            with pytest.raises(PolicyViolation, match=re.escape(repr(str(tmp_path / name)))):
                resolve_grants(policy)


def test_another_root_is_resolved_only_for_a_backend_that_can_give_it(tmp_path: Path) -> None:
    policy = SandboxPolicy().mount(tmp_path, "/")
    with pytest.raises(PolicyViolation, match="backend='wasm'"):
        resolve_grants(policy)
    assert resolve_grants(policy, root=True)[0].target == "/"


@pytest.mark.parametrize(
    "path", ["/", "/proc", "/dev", "/tmp", "/etc", "//", "//etc", "/proc/self", "/dev/shm", "link"]
)
def test_a_place_that_the_sandbox_makes_itself_cannot_be_granted(path: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    with pytest.raises(PolicyViolation, match="mount it elsewhere"):
        resolve_grants(SandboxPolicy().allow_read_write(tmp_path / "link" if path == "link" else path))


def test_naming_the_system_is_no_mistake_but_writing_it_is() -> None:
    assert resolve_grants(SandboxPolicy().allow_read("/usr")) == ()
    with pytest.raises(PolicyViolation):
        resolve_grants(SandboxPolicy().allow_read_write("/usr"))


def test_a_mount_shows_the_real_source_at_the_asked_place(tmp_path: Path) -> None:
    real = Path(os.path.realpath(tmp_path)) / "real"
    real.mkdir()
    (real.parent / "link").symlink_to(real)
    policy = SandboxPolicy().mount(real.parent / "link", "/data/", writable=True)
    assert resolve_grants(policy) == (Grant(str(real), "/data", True),)


@pytest.mark.parametrize("word", ["no", "false", 0, 1, None])
def test_a_word_that_is_true_by_accident_does_not_widen_a_policy(word: Any) -> None:
    with pytest.raises(PolicyViolation, match="writable must be true or false"):
        SandboxPolicy().mount("/etc", "/data", word)
    with pytest.raises(PolicyViolation, match="allow_process_spawn must be true or false"):
        SandboxPolicy().allow_process_spawn(word)


@pytest.mark.parametrize(
    "fields",
    [
        {"network": "yes"},
        {"process_spawn": 1},
        {"allowed_paths": ["/etc"]},
        {"allowed_paths": "/etc"},
        {"mounts": (Mount("/etc", "/proc"),)},
        {"mounts": (Mount("/etc", "data"),)},
        {"env": [("A", "b")]},
    ],
)
def test_a_policy_that_is_made_directly_is_checked_too(fields: dict[str, Any]) -> None:
    with pytest.raises(PolicyViolation):
        SandboxPolicy(**fields)


def test_a_policy_does_not_change_with_the_mapping_that_it_was_made_of() -> None:
    env = {"A": "b"}
    policy = SandboxPolicy(env=env)
    env["A"] = "c"
    assert policy.env == {"A": "b"}


@pytest.mark.parametrize("path", [None, 5, b"/etc", "", "a\0b", "\ud800"])
def test_what_is_no_path_is_refused_by_every_method_that_takes_one(path: Any) -> None:
    policy = SandboxPolicy()
    for take in (policy.allow_read, policy.allow_read_write, lambda p: policy.mount(p, "/data"), SandboxPolicy.load):
        with pytest.raises(PolicyViolation):
            take(path)


def test_a_mount_target_may_be_a_path_object_and_must_be_writable_as_text() -> None:
    assert SandboxPolicy().mount("/etc", Path("/data")).mounts == (Mount("/etc", "/data"),)
    with pytest.raises(PolicyViolation, match="not valid UTF-8"):
        SandboxPolicy().mount("/etc", "/d\ud800")


def test_policy_files_of_other_editors_are_read_and_things_that_are_no_files_refused(tmp_path: Path) -> None:
    (tmp_path / "P.JSON").write_text('{"allowNetwork": true}')
    (tmp_path / "bom.toml").write_bytes(b"\xef\xbb\xbfallowNetwork = true")
    assert SandboxPolicy.load(tmp_path / "P.JSON") == SandboxPolicy.load(tmp_path / "bom.toml")
    os.mkfifo(tmp_path / "fifo.json")
    (tmp_path / "huge.toml").write_bytes(b"#" * ((64 << 10) + 1))
    for name in ("fifo.json", "huge.toml"):
        with pytest.raises(PolicyViolation, match=name):
            SandboxPolicy.load(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("data:/data", Mount("data", "/data", False)),
        ("data:/data:ro", Mount("data", "/data", False)),
        ("data:/data:rw", Mount("data", "/data", True)),
        ("/srv/a:b:/x:rw", Mount("/srv/a:b", "/x", True)),
    ],
)
def test_a_mount_is_read_the_same_way_at_every_door_also_with_a_colon_in_the_host_path(text: str, mount: Mount) -> None:
    assert parse_mount(text) == mount


@pytest.mark.parametrize("text", ["", "data", ":/data", "data:", "data:rw", ":rw"])
def test_a_mount_that_lacks_a_part_is_refused(text: str) -> None:
    with pytest.raises(PolicyViolation, match="a part is missing"):
        parse_mount(text)
