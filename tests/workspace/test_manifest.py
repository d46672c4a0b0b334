import pytest

from sandbox_kernel.errors import InvalidRequest, PathTraversal
from sandbox_kernel.workspace.box_folder import BoxFolder
from sandbox_kernel.workspace.manifest import Manifest
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, Entry


def test_a_manifest_is_written_in_order_from_text_bytes_and_base64() -> None:
    folder = BoxFolder()
    Manifest.from_document(
        {
            "entries": [
                {"type": "directory", "path": "d/e"},
                {"type": "file", "path": "d/a", "content": "caf\u00e9"},
                {"type": "file", "path": "d/a", "content": b"\xff"},
                {"type": "file", "path": "b", "base64": "/w=="},
            ]
        }
    ).provision(folder)
    assert dict(folder.files()) == {"b": b"\xff", "d/a": b"\xff"}
    assert [change.path for change in folder.diff()] == ["b", "d", "d/a", "d/e"]
    folder.close()


@pytest.mark.parametrize("path", ["../up", "/etc/passwd", "a/../../up", "", "C:\\x", "\\x"])
def test_provision_rejects_path_traversal_and_absolute_paths_before_anything_is_written(path: str) -> None:
    for kind in (FILE, DIRECTORY):
        with pytest.raises(PathTraversal):
            Manifest((Entry(path, kind),))
    with pytest.raises(PathTraversal):
        Manifest.from_document([{"type": "file", "path": "ok", "content": ""}, {"type": "directory", "path": path}])


@pytest.mark.parametrize(
    "document",
    [
        None,
        "text",
        {"type": "file"},
        [7],
        [{}],
        [{"type": "git_repo", "path": "x", "url": "y"}],
        [{"type": "file", "path": "a"}],
        [{"type": "file", "path": "a", "content": "x", "mode": 7}],
        [{"type": "file", "path": "a", "content": 7}],
        [{"type": "file", "path": 7, "content": "x"}],
        [{"type": "file", "path": "a", "content": "\ud800"}],
        [{"type": "file", "path": "a", "base64": "???"}],
        [{"type": "file", "path": "a/", "content": "x"}],
        [{"type": "directory", "path": "a", "content": "x"}],
        [{"type": "file", "path": "a", "content": "x" * 1000, "extra": 1}],
    ],
)
def test_a_malformed_manifest_is_refused_with_the_forms_that_are_accepted(document: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        Manifest.from_document(document)
    assert len(str(caught.value)) < 600
