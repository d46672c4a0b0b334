"""Programs that abuse their pipes to the host: input, output, descriptors. Each is bounded by itself."""

from sandbox_kernel import Limits
from tests.attacks.harness import Attack

PROGRAMS = (
    Attack(
        id="R15", language="python", status=("timeout",), limit="timeout", timeout=1,
        code="import sys\nb='x'*65536+'\\n'\nwhile True: sys.stdout.write(b)",
    ),
    Attack(
        id="R26", language="python", status=("ok",), stdin_mb=256, says=("unread",),
        code="import time; time.sleep(.3); print('unread')",
    ),
    Attack(
        id="O03", language="python", status=("ok",), says=("\ufffd\ufffd\x00\U0001f600",),
        code="import os\nos.write(1,b'\\xff\\xfe\\x00\\xf0\\x9f'); os.write(1,b'\\x98\\x80')",
    ),
    Attack(
        id="X29-one-endless-line", language="python", status=("ok", "timeout"), limit=None, timeout=8,
        code="import os\nfor i in range(300): os.write(1, b'\\xf0\\x9f\\x98' * 100000)",
    ),
    Attack(
        id="X30-every-other-descriptor", language="python", status=("ok", "failed", "killed"),
        code="import os, struct\nfor fd in range(3, 256):\n  for data in (b'{\"op\": \"exit\", \"code\": 0}', struct.pack('>I', 24) + b'{\"op\":\"exit\",\"code\":0}   ', b'\\xff' * 65536):\n"
             "    try: os.set_blocking(fd, False); os.write(fd, data); print('WROTE', fd)\n    except OSError: pass\nraise SystemExit(7)",
        never_says=("WROTE",),
    ),
    Attack(
        id="X31-output-of-the-dead", language="python", status=("ok",),
        code="import os, time\nif os.fork() == 0:\n  os.setsid()\n  while True:\n    try: os.write(1, b'late ' * 1000)\n    except OSError: os._exit(0)\ntime.sleep(0.2)",
    ),
    Attack(
        id="Y05-pipes-turned-round", language="python", status=("ok", "failed"), timeout=5,
        code="import fcntl, os\nfor fd in (0, 1, 2):\n  for mode in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):\n    try: other = os.open('/proc/self/fd/%d' % fd, mode | os.O_NONBLOCK)\n    except OSError: continue\n"
             "    for act in (lambda: os.write(other, b'forged' * 1000), lambda: os.read(other, 100), lambda: fcntl.fcntl(other, 1031, 4096), lambda: fcntl.fcntl(other, 1031, 1 << 20),\n"
             "                lambda: fcntl.fcntl(other, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC | os.O_DIRECT), lambda: fcntl.fcntl(other, 8, 1), lambda: fcntl.fcntl(other, fcntl.F_SETLEASE, 1)):\n"
             "      try: act()\n      except OSError: pass\nos.write(2, b'done')",
        says=("done",),
    ),
    Attack(
        id="Y33-output-of-many-at-once", language="python", status=("timeout",), limit="timeout", timeout=2, limits=Limits(output_bytes=1 << 20),
        code="import os\nfor i in range(20):\n  if os.fork() == 0: break\nline = (b'\\x1b]0;x\\x07\\xff\\xfe\\r\\x00' * 6000)\nwhile True:\n  os.write(1 + i % 2, line)",
    ),
)  # fmt: skip
