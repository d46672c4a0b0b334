"""Programs that take too many of what is counted: processes, threads, descriptors, watches, signals, priority. Each is bounded by itself."""

from tests.attacks.harness import Attack
from tests.attacks.programs.by_number import SYSCALL

PROGRAMS = (
    Attack(
        id="R01", language="python", status=("ok",), limit="processes", says=("EAGAIN",),
        code="import os\nn=0\ntry:\n  while n<3000:\n    if os.fork()==0: os.execv('/bin/sleep',['sleep','20'])\n"
             "    n+=1\nexcept OSError as e: print('EAGAIN',n)\nassert n <= 64",
    ),
    Attack(
        id="R02", language="command", status=("ok", "failed", "timeout"), limit=None, timeout=2,
        code="f(){ [ $1 -gt 11 ] && sleep 10 || { f $(($1+1)) & f $(($1+1)); }; }; f 0",
    ),
    Attack(
        id="R25", language="python", status=("failed",), limit="open_files", says=("Too many open files",),
        code="import os,socket\nk=[]\nwhile len(k)<200000: k.append(os.pipe()); k.append(socket.socketpair())",
    ),
    Attack(
        id="R30", language="python", status=("ok",), says=("sched PermissionError", "nice PermissionError"),
        code="import os\ndef tried(name, f):\n  try: f(); print(name, 'DONE')\n"
             "  except OSError as e: print(name, type(e).__name__)\n"
             "tried('sched', lambda: os.sched_setscheduler(0,os.SCHED_FIFO,os.sched_param(99)))\n"
             "tried('nice', lambda: os.nice(-20))",
    ),
    Attack(
        id="X28-descriptors-in-flight", language="python", status=("ok", "failed"), timeout=20,
        code="import array, socket\nheld = 0\ntry:\n  for n in range(3000):\n    a, b = socket.socketpair(1, 2)\n    a.setblocking(False)\n"
             "    for i in range(50):\n      try: a.sendmsg([b'x'], [(1, 1, array.array('i', [a.fileno(), b.fileno()] * 100))]); held += 200\n      except (BlockingIOError, OSError): break\n    a.close(); b.close()\n"
             "except OSError as e: print(e)\nprint('held', held)",
        says=("held",),
    ),
    Attack(
        id="X32-inotify-epoll-timerfd", language="python", status=("ok", "failed"), timeout=20,
        code=SYSCALL + "n = 0\nfor i in range(100000):\n  for x, a, args in ((294, 26, (0,)), (291, 20, (0,)), (290, 19, (0, 0)), (283, 85, (1, 0)), (289, 74, (-1, b'\\0' * 8, 8, 0))):\n"
             "    if libc.syscall(ctypes.c_long(a if ARM else x), *[ctypes.c_long(v) if isinstance(v, int) else v for v in args]) < 0: break\n    n += 1\n  else: continue\n  break\nprint('held', n < 300)",
        says=("held True",),
    ),
    Attack(
        id="X33-threads", language="python", status=("ok", "failed"), timeout=20,
        code="import threading, time\nn = 0\ntry:\n  for i in range(5000): threading.Thread(target=time.sleep, args=(3,), daemon=True).start(); n += 1\nexcept (RuntimeError, OSError) as e: print('stopped', n)",
        says=("stopped",),
    ),
    Attack(
        id="X34-file-locks-and-leases", language="python", status=("ok", "failed", "timeout"), timeout=3,
        code="import fcntl, glob, os\nfor p in ['/usr/lib/os-release', '/etc/hosts', *glob.glob('/usr/lib/*/libc.so.6'), '/dev/null', '/dev/zero']:\n"
             "  for how in (fcntl.LOCK_EX, fcntl.LOCK_SH):\n    try: fd = os.open(p, os.O_RDONLY); fcntl.flock(fd, how | fcntl.LOCK_NB); print('locked', p)\n    except OSError as e: pass\n"
             "  try: fcntl.fcntl(os.open(p, os.O_RDONLY), 1024, 1); print('LEASED', p)\n  except OSError: pass\nprint('done')",
        says=("done",),
    ),
    Attack(
        id="Y10-pending-signals", language="c", status=("ok", "failed"), timeout=30,
        code="#define _GNU_SOURCE\n#include <signal.h>\n#include <stdio.h>\n#include <unistd.h>\nint main(){sigset_t s; sigfillset(&s); sigprocmask(SIG_BLOCK,&s,0);"
             " union sigval v={0}; long n=0; while(n<3000000 && sigqueue(getpid(),SIGRTMIN+1,v)==0) n++; printf(\"held %d\\n\", n<3000000); return 0;}",
        says=("held 1",),
    ),
    Attack(
        id="Y11-watches-and-poll-sets", language="python", status=("ok", "failed", "memory_exceeded"), timeout=30,
        code="import ctypes, os, select\nlibc = ctypes.CDLL(None)\nn = 0\nfd = libc.inotify_init1(0)\nfor i in range(60000):\n  try: os.mkdir('d%d' % i)\n  except OSError: break\n"
             "  if libc.inotify_add_watch(fd, b'd%d' % i, 0xfff) < 0: break\n  n += 1\n"
             "held = []\ntry:\n  for i in range(100):\n    e = select.epoll(); held.append(e)\n    for other in held[:-1]:\n      try: e.register(other.fileno())\n      except OSError: pass\nexcept OSError: pass\nprint('end')",
        says=("end",),
    ),
)  # fmt: skip
