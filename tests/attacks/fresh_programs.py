"""Hostile programs of kinds that the project's list does not have: other calls for the same aims. Bounded by themselves."""

from __future__ import annotations

from harness import SECRET, Attack
from programs import SYSCALL

from sandbox_kernel import Limits

FRESH = (
    # Memory that is no heap
    Attack(
        id="X01-pipe-buffers", language="python", status=("ok", "failed"), timeout=20,
        code="import fcntl, os\nheld = []\ntry:\n  for i in range(2000):\n    r, w = os.pipe()\n    held.append((r, w))\n"
             "    try: fcntl.fcntl(w, 1031, 1 << 20)\n    except OSError: pass\n    os.set_blocking(w, False)\n"
             "    try: os.write(w, b'x' * (1 << 20))\n    except BlockingIOError: pass\n"
             "except OSError as e: print('stopped', len(held) < 200)",
        says=("stopped True",),
    ),
    Attack(
        id="X02-socket-buffers", language="python", status=("ok", "failed", "memory_exceeded"), memory_mb=128,
        code="import socket\nheld = []\ntry:\n  for i in range(4000):\n    a, b = socket.socketpair()\n    held.append((a, b))\n"
             "    for s in (a, b):\n      s.setsockopt(1, 7, 1 << 30)\n      s.setblocking(False)\n      try:\n"
             "        while s.send(b'x' * 65536): pass\n      except BlockingIOError: pass\nexcept OSError as e: print('stopped')",
    ),
    Attack(
        id="X03-sysv-shared-memory", language="python", status=("ok", "failed", "memory_exceeded"),
        code="import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nlibc.shmat.restype = ctypes.c_void_p\n"
             "for n in range(400):\n  i = libc.shmget(0, 16 << 20, 0o1600)\n  if i < 0: print('refused', n); break\n"
             "  p = libc.shmat(i, None, 0)\n  if p in (None, 2**64-1): print('refused', n); break\n"
             "  ctypes.memset(p, 1, 16 << 20)\nelse: print('GOT ALL')",
        never_says=("GOT ALL",),
    ),
    Attack(
        id="X04-memfd-many", language="python", status=("ok", "failed", "memory_exceeded"),
        code="import os\nheld = []\nfor i in range(200):\n  fd = os.memfd_create('x%d' % i)\n  held.append(fd)\n"
             "  os.write(fd, b'x' * (8 << 20))\nprint('GOT ALL')",
        never_says=("GOT ALL",),
    ),
    Attack(
        id="X05-page-tables", language="python", status=("ok", "failed", "memory_exceeded"), timeout=20,
        code="import ctypes\nlibc = ctypes.CDLL(None)\nlibc.mmap.restype = ctypes.c_void_p\n"
             "libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]\n"
             "n = 0\nwhile n < 500000:\n  p = libc.mmap(None, 4096, 1 + n % 2, 0x22, -1, 0)\n"
             "  if p == 2**64-1: break\n  n += 1\nprint('mapped', n)",
    ),
    Attack(
        id="X06-huge-argv", language="python", status=("ok", "failed"),
        code="import os, subprocess\ntry: print(subprocess.run(['true', *['x' * 100000] * 600]))\nexcept OSError as e: print(e.errno)",
        says=("7",),
    ),
    Attack(
        # A host without a limit for stacks hands that on: then it is the memory that ends.
        id="X07-stack-depth", language="c", status=("killed", "failed", "memory_exceeded"), timeout=20,
        code="#include <string.h>\nint f(int n){volatile char b[65536]; memset((void*)b,n,sizeof b); return f(n+1)+b[0];}\n"
             "int main(){return f(0);}",
    ),
    # Files that are cheap to make and dear to look at
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
    # Time
    Attack(
        id="X15-finally-that-sleeps", language="python", status=("timeout",), limit="timeout", timeout=1.5,
        code="import signal, time\nfor s in set(signal.Signals) - {9, 19}:\n  try: signal.signal(s, lambda *a: time.sleep(30))\n  except (OSError, ValueError): pass\n"
             "while True:\n  try:\n    time.sleep(30)\n  finally:\n    time.sleep(30)",
    ),
    Attack(
        id="X16-timer-storm", language="python", status=("timeout", "ok"), timeout=2,
        code="import signal, time\nsignal.signal(signal.SIGALRM, lambda *a: None)\nsignal.setitimer(signal.ITIMER_REAL, 1e-6, 1e-6)\n"
             "signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))\nend = time.time() + 20\nwhile time.time() < end: pass",
    ),
    Attack(
        id="X17-stops-itself", language="python", status=("timeout",), limit="timeout", timeout=1.5,
        code="import os, signal\nif os.fork() == 0: os.kill(os.getppid(), signal.SIGSTOP)\nos.kill(os.getpid(), signal.SIGSTOP)",
    ),
    Attack(
        id="X18-vfork-parent-waits", language="c", status=("timeout",), limit="timeout", timeout=5,
        code="#include <unistd.h>\n#include <signal.h>\nint main(){sigset_t s; sigfillset(&s); sigprocmask(SIG_BLOCK,&s,0);"
             " if(vfork()==0){for(;;)pause();} return 0;}",
    ),
    Attack(
        id="X19-clock-and-limits-of-its-own", language="python", status=("ok",),
        code="import os, resource, time\nfor name in ('RLIMIT_NOFILE', 'RLIMIT_NPROC', 'RLIMIT_FSIZE', 'RLIMIT_CORE'):\n"
             "  which = getattr(resource, name)\n  hard = resource.getrlimit(which)[1]\n  if hard < 0: continue\n"
             "  try: resource.setrlimit(which, (hard + 1, hard + 1)); print('RAISED', name)\n  except (ValueError, OSError): pass\n"
             "try: time.clock_settime(time.CLOCK_REALTIME, 0); print('RAISED clock')\nexcept OSError: pass\nprint('done')",
        says=("done",), never_says=("RAISED",),
    ),
    # Getting out of the tree
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
        id="X23-mounts-by-the-new-calls", language="python", status=("ok",),
        code=SYSCALL + "call('fsopen', 430, 430, b'tmpfs', 0)\ncall('open_tree', 428, 428, -100, b'/', 1)\ncall('move_mount', 429, 429, -100, b'/tmp', -100, b'/box', 0)\n"
             "call('mount_setattr', 442, 442, -100, b'/', 0, 0, 0)\ncall('fspick', 433, 433, -100, b'/', 0)\ncall('pivot_root', 155, 41, b'/', b'/tmp')\n"
             "call('umount2', 166, 39, b'/proc', 2)\ncall('chroot', 161, 51, b'/proc/1/root')\ncall('setns', 308, 268, 0, 0)\ncall('unshare', 272, 97, 0x10000000)",
        says=("unshare",), never_says=("OPEN",),
    ),
    Attack(
        id="X24-kernel-surface", language="python", status=("ok",),
        code=SYSCALL + "call('userfaultfd', 323, 282, 0)\ncall('perf_event_open', 298, 241, b'\\0' * 128, 0, -1, -1, 0)\ncall('add_key', 248, 217, b'user', b'x', b'y', 1, -3)\n"
             "call('request_key', 249, 218, b'user', b'x', 0, 0)\ncall('name_to_handle_at', 303, 264, -100, b'/etc', ctypes.create_string_buffer(256), ctypes.create_string_buffer(8), 0)\n"
             "call('open_by_handle_at', 304, 265, -100, ctypes.create_string_buffer(256), 0)\ncall('bpf', 321, 280, 0, 0, 0)\ncall('kexec_load', 246, 104, 0, 0, 0, 0)\n"
             "call('init_module', 175, 105, 0, 0, b'')\ncall('reboot', 169, 142, 0, 0, 0, 0)\ncall('swapon', 167, 224, b'/box', 0)\ncall('acct', 163, 89, b'/box/a')\n"
             "call('settimeofday', 164, 170, ctypes.create_string_buffer(16), 0)\ncall('sethostname', 170, 161, b'x', 1)\ncall('quotactl', 179, 60, 0, 0, 0, 0)\ncall('syslog', 103, 116, 3, 0, 0)\n"
             "call('fanotify_init', 300, 262, 0, 0)\ncall('lookup_dcookie', 212, 18, 0, 0, 0)\ncall('mbind', 237, 235, 0, 0, 0, 0, 0, 0)\ncall('personality', 135, 92, 0x0400000)",
        says=("swapon",), never_says=("userfaultfd OPEN", "perf_event_open OPEN", "add_key OPEN", "open_by_handle_at OPEN", "bpf OPEN", "reboot OPEN", "swapon OPEN", "acct OPEN", "sethostname OPEN", "settimeofday OPEN", "fanotify_init OPEN", "syslog OPEN"),
    ),
    # The host's files by other names
    Attack(
        id="X25-proc-by-the-back-door", language="python", status=("ok",),
        code="import glob, os\nopened = []\nfor p in ['/proc/1/environ', '/proc/1/mem', '/proc/1/cwd/etc/shadow', '/proc/1/root@SENTINELS@/secret.txt', '/proc/self/root@SENTINELS@/secret.txt',\n"
             "  '/proc/@HOSTPID@/environ', '/proc/@HOSTPID@/root@SENTINELS@/secret.txt', '/proc/self/task/1/environ', '/proc/kcore', '/proc/kallsyms', '/proc/kmsg', '/proc/sysrq-trigger',\n"
             "  '/sys/kernel/uevent_helper', '/sys/fs/cgroup/cgroup.procs', '/dev/mem', '/dev/pts/0', '/dev/pts/1', '/dev/ptmx', '@SENTINELS@/secret.txt'] + glob.glob('/proc/1/fd/*') + glob.glob('/proc/1/map_files/*')[:3]:\n"
             "  for flags in (os.O_RDONLY, os.O_WRONLY):\n    try: fd = os.open(p, flags | os.O_NONBLOCK | os.O_NOCTTY)\n    except OSError: continue\n"
             "    try: data = os.read(fd, 200) if flags == os.O_RDONLY else b''\n    except OSError: data = b''\n    opened.append((p, flags, data[:40]))\n    os.close(fd)\n"
             "for p, f, d in opened: print('OPENED', p, f, d)",
        never_says=(SECRET, "OPENED /proc/1/environ", "OPENED /proc/1/mem", "OPENED /proc/kcore", "OPENED /proc/sysrq", "OPENED /dev/mem", "OPENED /proc/1/fd", "OPENED /sys"),
    ),
    Attack(
        id="X26-magic-links-and-races", language="python", status=("ok", "failed"), timeout=8,
        code="import os, threading\nos.mkdir('d')\nstop = []\ndef flip():\n  while not stop:\n    try:\n      os.rename('d', 'e'); os.symlink('@SENTINELS@', 'd'); os.unlink('d'); os.rename('e', 'd')\n    except OSError: pass\n"
             "t = threading.Thread(target=flip); t.start()\nfor i in range(3000):\n  try: open('d/writable.txt', 'w').write('after'); os.unlink('d/writable.txt')\n  except OSError: pass\n"
             "  try: print(open('d/secret.txt').read())\n  except OSError: pass\nstop.append(1); t.join()\n"
             "try: os.rename('d', 'real')\nexcept OSError: pass\ntry: os.symlink('@SENTINELS@', 'd')\nexcept OSError: pass\nprint('end')",
        says=("end",), never_says=(SECRET,),
    ),
    # Network by other families
    Attack(
        id="X27-families", language="python", status=("ok",),
        code="import socket\nfor f, t, p in ((16, 3, 0), (16, 3, 9), (16, 3, 15), (17, 3, 768), (38, 5, 0), (40, 1, 0), (31, 1, 1), (29, 3, 1), (30, 1, 0), (44, 3, 0), (2, 3, 1), (2, 3, 255), (10, 3, 58), (36, 1, 0), (21, 5, 0)):\n"
             "  try:\n    s = socket.socket(f, t, p)\n    print('OPEN', f, t, p)\n  except OSError as e: pass\n"
             "for target in (('@ADDRESS@', @TCP@), ('127.0.0.1', @TCP@)):\n  try: socket.create_connection(target, 1); print('CONNECTED')\n  except OSError: pass\n"
             "for path in ('\\0@ABSTRACT@', '@PATHNAME@'):\n  try: s = socket.socket(1); s.connect(path); print('CONNECTED')\n  except OSError: pass\n"
             "try: s = socket.socket(1, 2); s.sendto(b'x', '@DATAGRAM@'); print('CONNECTED')\nexcept OSError: pass\n"
             "try: print('RESOLVED', socket.getaddrinfo('localhost.localdomain.invalid', 80))\nexcept OSError: pass\nprint('done')",
        says=("done",), never_says=("CONNECTED", "RESOLVED", "OPEN 17", "OPEN 40", "OPEN 38", "OPEN 31", "OPEN 2 3"),
    ),
    Attack(
        id="X28-descriptors-in-flight", language="python", status=("ok", "failed"), timeout=20,
        code="import array, socket\nheld = 0\ntry:\n  for n in range(3000):\n    a, b = socket.socketpair(1, 2)\n    a.setblocking(False)\n"
             "    for i in range(50):\n      try: a.sendmsg([b'x'], [(1, 1, array.array('i', [a.fileno(), b.fileno()] * 100))]); held += 200\n      except (BlockingIOError, OSError): break\n    a.close(); b.close()\n"
             "except OSError as e: print(e)\nprint('held', held)",
        says=("held",),
    ),
    # Output
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
        id="X35-terminals", language="python", status=("ok", "failed"),
        code="import fcntl, os, termios\nheld = []\nn = 0\ntry:\n  for i in range(5000): held.append(os.openpty()); n += 1\nexcept OSError as e: print('stopped', n)\n"
             "for fd in (0, 1, 2):\n  for request in (termios.TIOCSTI, 0x541C, termios.TIOCSCTTY, termios.TIOCCONS):\n    try: fcntl.ioctl(fd, request, b'x' * 8); print('PUSHED', fd)\n    except OSError: pass",
        never_says=("PUSHED",),
    ),
)  # fmt: skip
