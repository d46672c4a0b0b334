"""What runs inside jails is compiled before the first one starts, in its present version."""

import importlib.util
import os
import shutil
from pathlib import Path

import pytest

from sandbox_kernel.jail import guest_programs


def test_programs_that_are_new_or_changed_are_compiled_and_the_others_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "package"
    for name in ("guest/gate", "jail"):
        (package / name).mkdir(parents=True)
    shutil.copy(guest_programs.__file__, package / "jail" / "guest_programs.py")
    sources = [package / "guest" / f"{name}.py" for name in ("same", "gate/changed", "gate/new")]
    for source in sources:
        source.write_text("x = 1\n")
    monkeypatch.setattr(guest_programs, "__file__", str(package / "jail" / "guest_programs.py"))
    monkeypatch.setattr(guest_programs, "guest_folder", guest_programs.guest_folder.__wrapped__)
    cached = [Path(importlib.util.cache_from_source(str(source))) for source in sources]
    assert guest_programs.guest_folder() == str(package / "guest")
    assert all(path.exists() for path in cached)
    same, changed, new = cached
    os.utime(same, (2**31, 2**31))
    os.utime(changed, (1, 1))
    sources[1].write_text("x = 1000\n")
    new.unlink()
    guest_programs.guest_folder()
    assert same.stat().st_mtime == 2**31
    assert changed.stat().st_mtime > 1
    assert new.exists()
