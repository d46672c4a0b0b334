import pytest

from sandbox_kernel.errors import InvalidRequest, PathTraversal, SandboxError
from sandbox_kernel.workspace.tree.paths import display_name, names_beneath


@pytest.mark.parametrize(
    ("path", "names"),
    [
        pytest.param("file.txt", ("file.txt",), id="simple"),
        pytest.param("a/b/c.txt", ("a", "b", "c.txt"), id="nested"),
        pytest.param("a/../b.txt", ("b.txt",), id="dotdot within"),
        pytest.param("./file.txt", ("file.txt",), id="dot"),
        pytest.param("./a/./b", ("a", "b"), id="multiple dots"),
        pytest.param("a/b/c/d/e/f/g", tuple("abcdefg"), id="deep"),
        pytest.param("a/b/../../c", ("c",), id="dotdot to the exact boundary"),
        pytest.param("a/b/../c/../d", ("a", "d"), id="multiple dotdot"),
        pytest.param("a//b", ("a", "b"), id="double slash"),
        pytest.param("/box/a.txt", ("a.txt",), id="guest style (S13)"),
        pytest.param("/box/a/../b", ("b",), id="guest style with dotdot within"),
        pytest.param("./C:notes", ("C:notes",), id="a name that looks like a drive"),
        pytest.param("..%2f..%2fetc", ("..%2f..%2fetc",), id="percent signs are only characters"),
        pytest.param("\uff0e\uff0e/etc", ("\uff0e\uff0e", "etc"), id="wide dots are only characters"),
        pytest.param("caf\u00e9/\udcff", ("caf\u00e9", "\udcff"), id="bytes that are no text"),
    ],
)
def test_a_path_that_stays_beneath_is_taken(path: str, names: tuple[str, ...]) -> None:
    assert names_beneath(path) == names


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("", id="empty"),
        pytest.param("/etc/passwd", id="absolute unix"),
        pytest.param("../x", id="parent escape"),
        pytest.param("a/../../x", id="deep escape"),
        pytest.param("a/b/../../../x", id="triple escape"),
        pytest.param("\\Windows\\x", id="backslash absolute"),
        pytest.param("C:\\Windows", id="windows drive"),
        pytest.param("..", id="just dotdot"),
        pytest.param("a/../..", id="ends above"),
        pytest.param("a/../../root/x", id="leaves and comes back"),
        pytest.param("..\\x", id="backslash escape"),
        pytest.param("//etc/passwd", id="double slash absolute"),
        pytest.param("/box/../etc/passwd", id="guest style escape"),
        pytest.param("/boxer/x", id="another folder that begins like the guest's"),
        pytest.param("/workspace/../etc/passwd", id="absolute with dotdot"),
        pytest.param("c:x", id="drive without a slash"),
    ],
)
@pytest.mark.parametrize("folder", [False, True])
def test_a_path_that_leaves_is_a_traversal(path: str, folder: bool) -> None:
    with pytest.raises(PathTraversal):
        names_beneath(path, folder=folder)


@pytest.mark.parametrize("path", ["etc\0/passwd", "\ud800", "a" * 256, "/".join(["a" * 200] * 30), None, 7, b"a"])
def test_a_path_that_no_file_system_takes_is_an_invalid_request(path: object) -> None:
    with pytest.raises(InvalidRequest):
        names_beneath(path)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["a/", "a/.", "a/b/..", ".", "/box", "/box/"])
def test_a_path_that_can_only_name_a_folder_is_refused_where_a_file_is_meant(path: str) -> None:
    with pytest.raises(InvalidRequest):
        names_beneath(path)
    assert names_beneath(path, folder=True) in ((), ("a",))


@pytest.mark.parametrize("names", [("..",), ("a", ".."), ("",), (".",), ("a/b",), ("a\0b",), (7,)])
def test_exact_names_are_checked_too(names: tuple[str, ...]) -> None:
    with pytest.raises(SandboxError):
        names_beneath(names)


@pytest.mark.parametrize("name", ["-rf", "<img src=x onerror=alert(1)>", "CON", "C:x", "\\x", "..\\up", "a" * 255])
def test_exact_names_may_hold_what_no_person_would_type(name: str) -> None:
    assert names_beneath((name,)) == (name,)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("plain name.txt", "plain name.txt"),
        ("caf\u00e9 \u4e2d\u6587", "caf\u00e9 \u4e2d\u6587"),
        ("-rf", "-rf"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x7f\x9b", "\\x7f\\x9b"),
        ("\udcff", "\\xff"),
        ("\ud800", "\\ud800"),
        ("cod\u202etxt.exe", "cod\\u202etxt.exe"),
        ("a\u2028b\u200bc", "a\\u2028b\\u200bc"),
        ("\U000e0041", "\\U000e0041"),
        ("a\u3164\ufe0f.csv\u2800", "a\\u3164\\ufe0f.csv\\u2800"),
        ("back\\slash", "back\\\\slash"),
        ("..\\up", "..\\\\up"),
        ("a" * 255, "a" * 255),
    ],
)
def test_a_hostile_name_is_shown_as_one_harmless_line(name: str, shown: str) -> None:
    assert display_name(name) == shown
    assert display_name(name).isprintable()
    display_name(name).encode()


def test_two_names_never_look_the_same() -> None:
    assert display_name("\\n") != display_name("\n")
    assert display_name("\\xff") != display_name("\udcff")
