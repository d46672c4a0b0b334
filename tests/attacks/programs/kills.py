"""Programs that hide from their end, or send signals to the gate, the host and others. Each is bounded by itself."""

from tests.attacks.harness import Attack
from tests.attacks.programs.by_number import SYSCALL

PROGRAMS = (
    Attack(
        id="K01", language="python", status=("timeout",), limit="timeout", timeout=1,
        code="import os,time\nif os.fork()==0:\n  os.setsid()\n"
             "  if os.fork()==0: os.execv('/bin/sleep',['sleep','30'])\n  os._exit(0)\ntime.sleep(60)",
    ),
    Attack(
        id="K02", language="python", status=("ok",), says=("hi",), timeout=20,
        code="import os,time\nprint('hi')\nif os.fork()==0: time.sleep(25)",
    ),
    Attack(
        id="K03", language="python", status=("ok", "timeout", "failed"), timeout=2,
        code="import os,time\nfor g in range(400):\n  if os.fork()==0:\n    os.setsid(); time.sleep(.002)\n"
             "  else: os._exit(0)\ntime.sleep(20)",
    ),
    Attack(
        id="K06", language="python", status=("ok", "killed", "failed"), timeout=5,
        code="import os\nfor p in (os.getppid(),1,0,-1,-os.getpgrp(),@HOSTPID@):\n"
             "  try: os.kill(p,15); print('SENT',p)\n  except OSError as e: print(e)",
    ),
    Attack(
        id="X20-subreaper-and-closed-descriptors", language="python", status=("ok",),
        code="import ctypes, os, time\nlibc = ctypes.CDLL(None)\nlibc.prctl(36, 1, 0, 0, 0)\nlibc.prctl(1, 0, 0, 0, 0)\n"
             "if os.fork() == 0:\n  os.setsid()\n  if os.fork(): os._exit(0)\n  os.closerange(0, 256)\n  os.chdir('/')\n"
             "  libc.prctl(15, b'kworker/0:1', 0, 0, 0)\n  time.sleep(25)\n  os._exit(0)\nprint('left')",
        says=("left",),
    ),
    Attack(
        id="X21-environment-wiped", language="python", status=("ok",),
        code="import os\nif os.fork() == 0:\n  os.setsid()\n  os.closerange(0, 3)\n  os.execve('/bin/sleep', ['[kthreadd]', '25'], {})\nprint('left')",
        says=("left",),
    ),
    Attack(
        id="X22-reach-into-others", language="python", status=("ok",),
        code=SYSCALL + "b = ctypes.create_string_buffer(64)\nfor pid in (1, os.getppid() or 1):\n"
             "  call('ptrace', 101, 117, 16, pid, 0, 0)\n  call('ptrace_seize', 101, 117, 0x4206, pid, 0, 0)\n"
             "  call('process_vm_readv', 310, 270, pid, 0, 1, 0, 1, 0)\n  call('kcmp', 312, 272, pid, os.getpid(), 0, 0, 0)\n"
             "fd = libc.syscall(ctypes.c_long(434), ctypes.c_long(1), ctypes.c_long(0))\ncall('pidfd_getfd', 438, 438, fd, 0, 0)\n"
             "call('process_madvise', 440, 440, fd, 0, 0, 21, 0)\nprint('done')",
        says=("done",), never_says=("ptrace OPEN", "ptrace_seize OPEN", "pidfd_getfd OPEN"),
    ),
    Attack(
        id="Y01-every-signal-to-the-gate", language="python", status=("failed",),
        code="import os, signal\nfor number in [n for n in range(1, 65) if n not in (32, 33)]:\n  for pid in {1, os.getppid() or 1}:\n"
             "    if pid == os.getpid(): continue\n    try: os.kill(pid, number)\n    except OSError: pass\nprint('still here')\nraise SystemExit(7)",
        says=("still here",),
    ),
    Attack(
        # CLONE_PARENT makes a child of the gate, whose end must not be taken for the program's.
        id="Y02-a-child-of-the-gate", language="c", status=("failed",), timeout=30,
        code="#define _GNU_SOURCE\n#include <sched.h>\n#include <signal.h>\n#include <stdio.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n"
             "int main(){for(int i=0;i<20;i++){long p=syscall(SYS_clone, 0x8000|SIGCHLD, 0,0,0,0); if(p==0) _exit(0);}\n"
             " usleep(200000); puts(\"still here\"); fflush(stdout); _exit(7);}",
        says=("still here",),
    ),
    Attack(
        id="Y03-memory-of-the-gate", language="python", status=("ok",),
        code=SYSCALL + "import struct\nb = ctypes.create_string_buffer(b'x' * 64)\nv = struct.pack('QQ', ctypes.addressof(b), 64)\n"
             "for pid in {1, os.getppid() or 1} - {os.getpid()}:\n  call('process_vm_writev', 311, 271, pid, v, 1, v, 1, 0)\n"
             "  for name in ('mem', 'fd/3', 'fd/0', 'cwd/x', 'attr/current', 'oom_score_adj', 'autogroup', 'timerslack_ns', 'uid_map', 'setgroups', 'clear_refs', 'comm'):\n"
             "    try: fd = os.open('/proc/%d/%s' % (pid, name), os.O_RDWR); os.write(fd, b'1'); print('WROTE', name)\n    except OSError: pass\n"
             "  fd = libc.syscall(ctypes.c_long(434), ctypes.c_long(pid), ctypes.c_long(0))\n"
             "  for n in range(16): call('pidfd_getfd', 438, 438, fd, n, 0)\nprint('done')",
        says=("done",), never_says=("WROTE", "OPEN"),
    ),
    Attack(
        id="Y06-a-stranger-holds-the-output", language="command", status=("ok",), says=("first",), timeout=20,
        code="echo first; (trap '' TERM HUP INT PIPE; setsid sh -c 'exec 0<&- ; sleep 25; echo second' &) ; exec 1>&- 2>&-",
    ),
    Attack(
        id="Y13-a-program-in-memory-that-hides", language="python", status=("ok",), says=("left",),
        code="import os\ntry: fd = os.memfd_create('', 0)\nexcept OSError: fd = os.open('/bin/sleep', os.O_RDONLY)\n"
             "else:\n  with open('/bin/sleep', 'rb') as f: os.write(fd, f.read())\n"
             "for i in range(3):\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    os.dup2(os.open('/dev/null', 2), 1)\n    os.execve(fd, ['', '25'], {})\nprint('left')",
    ),
    Attack(
        id="Y32-timers-for-the-whole-group", language="python", status=("killed",), timeout=20,
        code="import os, signal, time\nfor i in range(5):\n  if os.fork() == 0:\n    signal.signal(signal.SIGALRM, lambda *a: os.kill(0, signal.SIGALRM))\n    signal.setitimer(signal.ITIMER_REAL, 0.3)\n    time.sleep(20)\n    os._exit(0)\ntime.sleep(20)",
    ),
)  # fmt: skip
