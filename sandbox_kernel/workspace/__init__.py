"""Files in and out of a sandbox, always beneath a root."""

from sandbox_kernel.workspace.archive import restore, save
from sandbox_kernel.workspace.changes import Snapshot, compare, displayed, snapshot
from sandbox_kernel.workspace.manifest import ArchiveEntry, DirectoryEntry, FileEntry, Manifest, ManifestEntry
from sandbox_kernel.workspace.paths import display_name
from sandbox_kernel.workspace.rooted import Rooted
from sandbox_kernel.workspace.transfer import PackedFiles, Skipped, collect, pack_files
from sandbox_kernel.workspace.walk import DirEntry, Entry, Walk, WalkLimits

__all__ = [
    "ArchiveEntry",
    "DirEntry",
    "DirectoryEntry",
    "Entry",
    "FileEntry",
    "Manifest",
    "ManifestEntry",
    "PackedFiles",
    "Rooted",
    "Skipped",
    "Snapshot",
    "Walk",
    "WalkLimits",
    "collect",
    "compare",
    "display_name",
    "displayed",
    "pack_files",
    "restore",
    "save",
    "snapshot",
]
