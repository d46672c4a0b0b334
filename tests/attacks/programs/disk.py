"""Programs that fill the disk: bytes, files, folders, names, holes. Each is bounded by itself."""

from sandbox_kernel import Limits
from tests.attacks.harness import Attack

PROGRAMS = (
    Attack(
        id="R08", language="command", status=("failed",), says=("No space left",), timeout=20,
        code="dd if=/dev/zero of=/dev/shm/x bs=1M count=3000 2>&1; dd if=/dev/zero of=/tmp/x bs=1M count=3000 2>&1",
    ),
    Attack(
        id="R09", language="python", status=("failed",), limit="disk", says=("No space left",),
        code="f=open('big','wb')\nfor i in range(4096): f.write(b'x'*(1<<20))",
    ),
    Attack(
        id="R10", language="python", status=("failed",), limit="disk", says=("No space left",), timeout=60, memory_mb=1024,
        limits=Limits(disk_mb=64),
        # Less than the memory, which may hold the files too. It waits at the end, for a host that looks late.
        code="import time\nfor i in range(20000): open('f%d'%i,'wb').write(b'x'*8192)\ntime.sleep(40)",
    ),
    Attack(
        id="R11", language="python", status=("killed",), limit="disk", timeout=60, memory_mb=1024,
        limits=Limits(disk_mb=64),
        # It waits at the end, for a host that looks late.
        code="import os, time\nfor i in range(300000): os.mkdir('d%d'%i)\ntime.sleep(40)",
    ),
    Attack(
        id="R12", language="python", status=("failed",), limit="disk", says=("File too large",),
        code="open('s','wb').truncate(1<<40)",
    ),
    Attack(
        id="R14", language="python", status=("ok",), timeout=60, memory_mb=1024,
        code="import os\nfor i in range(100000):\n  os.mkdir('a'); os.chdir('a')",
    ),
    Attack(
        id="X08-hard-links", language="python", status=("ok", "failed", "killed"), timeout=20,
        code="import os\nopen('a', 'wb').write(b'x' * 4096)\nfor i in range(30000): os.link('a', 'l%d' % i)\nprint('linked')",
    ),
    Attack(
        # The disk limit and the memory limit are the same size here, and both count attributes: either may be first.
        id="X09-xattrs", language="python", status=("ok", "failed", "killed", "memory_exceeded"),
        code="import os\nopen('a', 'w').close()\nn = 0\ntry:\n  for i in range(100000):\n    os.setxattr('a', 'user.x%d' % i, b'v' * 60000); n += 1\n"
             "except OSError as e: print('stopped', e.errno)\nassert n < 50000",
        never_says=("AssertionError",),
    ),
    Attack(
        id="X10-punched-holes", language="python", status=("ok", "failed"), limits=Limits(disk_mb=16),
        code="import os\nfd = os.open('h', os.O_RDWR | os.O_CREAT)\ntry:\n  for i in range(100000): os.pwrite(fd, b'x', i * (1 << 20))\n"
             "except OSError as e: print('stopped', e.errno)",
        says=("stopped",),
    ),
    Attack(
        id="X11-fallocate", language="python", status=("ok", "failed"),
        code="import os\ntry: os.posix_fallocate(os.open('f', os.O_RDWR | os.O_CREAT), 0, 1 << 33); print('GOT ALL')\n"
             "except OSError as e: print('stopped', e.errno)",
        says=("stopped",), never_says=("GOT ALL",),
    ),
    Attack(
        id="X12-deleted-but-open", language="python", status=("ok", "failed", "killed"), limits=Limits(disk_mb=16),
        code="import os\nheld = []\ntry:\n  for i in range(200):\n    f = open('x', 'wb'); f.write(b'x' * (1 << 20)); f.flush(); os.unlink('x'); held.append(f)\n"
             "  print('GOT ALL')\nexcept OSError as e: print('stopped', e.errno)",
        says=("stopped",), never_says=("GOT ALL",),
    ),
    Attack(
        id="X13-names-as-output", language="python", status=("ok",),
        code="import os\nfor n in (b'\\xff\\xfe', b'a\\nb', b'\\x1b]52;c;AAAA\\x07', b' ', b'-rf', b'..x', 'é\\u202egnp'.encode()):\n"
             "  open(b'/box/' + n if os.path.isdir('/box') else n, 'w').close()\nos.mkfifo('fifo')\nos.symlink('/etc/shadow', 'link')\n"
             "os.symlink('link2', 'link2')\nprint('made')",
        says=("made",),
    ),
    Attack(
        id="X14-folders-without-rights", language="python", status=("ok",),
        code="import os\nos.makedirs('a/b/c')\nopen('a/b/c/f', 'w').write('x')\nfor p in ('a/b/c/f', 'a/b/c', 'a/b', 'a'): os.chmod(p, 0)\nprint('made')",
        says=("made",),
    ),
)  # fmt: skip
