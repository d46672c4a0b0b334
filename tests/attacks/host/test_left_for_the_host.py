"""What a program leaves for the host and for the next run: names, trees, links, archives. The box stays usable."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import InvalidRequest, Limits, ProcessConfig, Sandbox, SandboxError
from tests.attacks.harness import SECRET, make_sentinels, sentinel_state

#: By what it leaves: nothing of it may be in the way of the next run of the same box.
LEFT = {
    "a name that is no text": "open(b'\\xff\\xfe', 'w').close()",
    "a name with a backslash": "open('a\\\\b', 'w').close()",
    "a name with a drive": "open('C:x', 'w').close()",
    "a folder with such a name": "import os\nos.makedirs('C:d/e'); open('C:d/e/f', 'w').close()",
    "a name that ends lines": "open('a\\nb\\r[ok]', 'w').close()",
    "a name that turns the line round": "open('\\u202egnp.exe', 'w').close()",
    "a name that drives a terminal": "open('\\x1b]52;c;AAAA\\x07', 'w').close()",
    "a name of 255 bytes": "open('a' * 255, 'w').close()",
    "folders 400 levels deep": "import os\nfor i in range(400): os.mkdir('a'); os.chdir('a')",
    "a path of 7 500 bytes": "import os\nfor i in range(30): os.mkdir('a' * 250); os.chdir('a' * 250)",
    "a folder without rights": "import os\nos.mkdir('d'); open('d/f', 'w').close(); os.chmod('d/f', 0); os.chmod('d', 0)",
    "pipes and links": "import os\nos.mkfifo('p'); os.symlink('p', 'l'); os.symlink('/etc', 'e'); os.symlink('.', 'd')",
    "modules that lie": "for n in ('json', 'site', 'sitecustomize', 'os'): open(n + '.py', 'w').write('1/0')",
    "start files of shells": "for n in ('.bashrc', '.profile', '.bash_profile'): open(n, 'w').write('exit 3')",
}


@pytest.fixture
def box(nothing_left: None) -> Iterator[Sandbox]:
    with Sandbox(config=ProcessConfig(pool_size=0)) as opened:
        yield opened


@pytest.mark.parametrize("what", LEFT)
@pytest.mark.one_case
def test_a_box_runs_on_after_a_program_that_left(what: str, box: Sandbox) -> None:
    result = box.run(LEFT[what], timeout=30)
    assert result.ok, result
    for text in (*result.notes, *(change.path for change in result.changes)):
        assert text.isprintable(), "a name of the program's reached a message as it is"
    json.dumps(result.to_dict(), ensure_ascii=False).encode()
    assert box.run("print('next')", timeout=30).stdout == "next\n"
    assert box.run("echo next", "command", timeout=30).stdout == "next\n"
    with box.session("command", memory_mb=256) as session:
        assert session.run("echo next", timeout=30).stdout == "next\n"


def test_a_file_that_is_a_link_every_other_moment_is_read_as_itself_or_not_at_all(box: Sandbox, tmp_path: Path) -> None:
    sentinels = make_sentinels(tmp_path)
    before = sentinel_state(sentinels)
    code = (
        "import os\nopen('a', 'w').write('mine'); os.symlink('@/secret.txt', 'b'); os.mkdir('d'); os.symlink('@', 'e')\n"
        "if os.fork() == 0:\n  os.setsid(); os.close(1); os.close(2)\n  while True:\n"
        "    for x, y in (('a', 'b'), ('d', 'e')): os.rename(x, 't'); os.rename(y, x); os.rename('t', y)\n"
    )
    with box.session(memory_mb=256) as session:
        for cell in (code.replace("@", str(sentinels)), "1", "2"):
            result = session.run(cell, timeout=20)
            assert SECRET not in str(result.to_dict())
            for path in ("a", "b", "d/secret.txt", "e/secret.txt") * 25:
                try:
                    assert session.read_file(path) == b"mine"
                except SandboxError:
                    continue
                try:
                    session.write_file("d/writable.txt", b"after")
                except SandboxError:
                    continue
    assert sentinel_state(sentinels) == before


@pytest.mark.parametrize("levels", [300, 1990])
def test_a_file_of_the_callers_that_lies_deep_is_refused_before_anything_runs(levels: int, box: Sandbox) -> None:
    with pytest.raises(InvalidRequest, match="levels of folders"):
        box.run("print(1)", files={"/".join("a" * levels): "x"}, timeout=20)


@pytest.mark.slow
def test_archives_that_unpack_to_more_than_they_are_stay_inside_their_limits(box: Sandbox) -> None:
    """Bombs are the program's own affair: they end at its disk limit, and the host unpacks nothing."""
    code = (
        "import io, tarfile, zipfile\nwith zipfile.ZipFile('bomb.zip', 'w', zipfile.ZIP_DEFLATED) as z:\n"
        "  for i in range(8): z.writestr('f%d' % i, bytes(10 << 20))\n"
        "with tarfile.open('links.tar', 'w') as t:\n  for n, target in (('l', '/etc'), ('l/passwd', ''), ('../up', '')):\n"
        "    m = tarfile.TarInfo(n); m.type = tarfile.SYMTYPE if target else tarfile.REGTYPE; m.linkname = target; t.addfile(m)\n"
        "zipfile.ZipFile('bomb.zip').extractall()"
    )
    result = box.run(code, timeout=60, limits=Limits(disk_mb=32))
    assert (str(result.status), result.limit) in (("failed", "disk"), ("killed", "disk")), result
    assert box.run("print('next')", timeout=20).stdout == "next\n"
