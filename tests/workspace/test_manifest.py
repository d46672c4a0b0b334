from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_kernel.errors import InvalidRequest, PathTraversal
from sandbox_kernel.workspace.manifest import Manifest
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, Entry


def test_an_empty_manifest_provisions_nothing(rooted: Rooted, folder: Path) -> None:
    Manifest().provision(rooted)
    Manifest.from_document([]).provision(rooted)
    assert os.listdir(folder) == []


def test_files_and_folders_of_a_manifest_are_provisioned_in_order(rooted: Rooted, folder: Path) -> None:
    Manifest(
        (
            Entry("data", DIRECTORY),
            Entry("data/a.bin", FILE, data=b"\xff"),
            Entry("data/a.bin", FILE, data=b"\x00"),
            Entry("e/f", DIRECTORY),
        )
    ).provision(rooted)
    assert (folder / "data/a.bin").read_bytes() == b"\x00"
    assert (folder / "e/f").is_dir()


@pytest.mark.parametrize("path", ["../up", "/etc/passwd", "a/../../up", "", "C:\\x", "\\x"])
def test_provision_rejects_path_traversal_and_absolute_paths_before_anything_is_written(path: str) -> None:
    for kind in (FILE, DIRECTORY):
        with pytest.raises(PathTraversal):
            Manifest((Entry(path, kind),))
    with pytest.raises(PathTraversal):
        Manifest.from_document([{"type": "file", "path": "ok", "content": ""}, {"type": "directory", "path": path}])


def test_the_json_form_takes_text_bytes_and_base64(rooted: Rooted) -> None:
    Manifest.from_document(
        {
            "entries": [
                {"type": "file", "path": "text", "content": "caf\u00e9"},
                {"type": "file", "path": "bytes", "content": b"\xff"},
                {"type": "file", "path": "base64", "base64": "/w=="},
            ]
        }
    ).provision(rooted)
    assert [rooted.read(name) for name in ("text", "bytes", "base64")] == ["caf\u00e9".encode(), b"\xff", b"\xff"]


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
