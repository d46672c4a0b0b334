"""Programs that make forbidden system calls, or look for rights and programs that were taken away. Each is bounded by itself."""

from tests.attacks.harness import SECRET, Attack
from tests.attacks.programs.by_number import SYSCALL

PROGRAMS = (
    Attack(
        id="S03", language="python", status=("ok",), says=("unshare EPERM", "mount EPERM", "setns EPERM"),
        code=SYSCALL + "call('unshare',272,97,0x10000000|0x20000)\n"
             "call('mount',165,40,b'none',b'/tmp',b'tmpfs',0,None)\n"
             "call('setns',308,268,0,0)\ncall('chroot',161,51,b'/tmp')\ncall('pivot_root',155,41,b'/',b'/')",
        never_says=("OPEN",),
    ),
    Attack(
        id="S04", language="python", status=("ok",), says=("io_uring ENOSYS", "bpf EPERM", "keyctl EPERM"),
        never_says=("OPEN",),
        code=SYSCALL + "call('io_uring',425,425,8,ctypes.create_string_buffer(256))\ncall('bpf',321,280,0,None,0)\n"
             "call('keyctl',250,219,0,0,0)\ncall('perf',298,241,None,0,-1,-1,0)\ncall('userfaultfd',323,282,0)\n"
             "call('ptrace',101,117,0,0,0,0)\ncall('kexec',246,104,0,0,None,0)\ncall('add_key',248,217,b'user',b'x',b'y',1,-3)",
    ),
    Attack(
        id="S06", language="python", status=("ok",), never_says=("OPEN",),
        code=SYSCALL + "call('x32 getpid',0x40000000|39,None)\ncall('far',900,900)",
    ),
    Attack(
        id="S07", language="python", status=("ok",), says=("clone3 ENOSYS",), never_says=("OPEN",),
        code=SYSCALL + "call('clone3',435,435,(ctypes.c_uint64*11)(0x10000000),88)\n"
             "call('clone',56,220,0x10000000|17,0,0,0,0)",
    ),
    Attack(
        id="S08", language="python", status=("ok",), never_says=("PUSHED",),
        code="import fcntl,os,pty\nm,s=pty.openpty()\nfor r in (0x5412, 0x541C, 0x100005412):\n"
             "  try: fcntl.ioctl(s,r & 0xFFFFFFFF,b'i'); print('PUSHED')\n  except OSError as e: print(e.strerror)",
    ),
    Attack(
        id="S11", language="python", status=("ok",), says=("from memory",),
        code="import os\ntry: fd=os.memfd_create('x')\nexcept OSError: print('nothing from memory'); raise SystemExit\n"
             "os.write(fd,open('/bin/echo','rb').read())\nos.execve(fd,['echo','from','memory'],{})",
    ),
    Attack(
        id="S12", language="command", policy="strict", status=("failed", "killed"), never_says=("curl 7", "curl 8"),
        code="cat /etc/passwd; for l in /lib/ld-linux-* /lib64/ld-linux-*; do $l /usr/bin/curl --version; done; exit 9",
    ),
    Attack(id="S14", language="python", status=("failed",), code="import os; os.abort()"),
    Attack(
        id="S16", language="python", status=("ok",), never_says=(SECRET,),
        code="import ctypes,gc,sys\nprint(len([].__class__.__base__.__subclasses__()) > 10)\n"
             "ctypes.CDLL(None).system(b'id; cat @SENTINELS@/secret.txt')\nprint(len(gc.get_objects()) > 10)\n"
             "sys.settrace(lambda *a: None)",
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
    Attack(
        id="X35-terminals", language="python", status=("ok", "failed"),
        code="import fcntl, os, termios\nheld = []\nn = 0\ntry:\n  for i in range(5000): held.append(os.openpty()); n += 1\nexcept OSError as e: print('stopped', n)\n"
             "for fd in (0, 1, 2):\n  for request in (termios.TIOCSTI, 0x541C, termios.TIOCSCTTY, termios.TIOCCONS):\n    try: fcntl.ioctl(fd, request, b'x' * 8); print('PUSHED', fd)\n    except OSError: pass",
        never_says=("PUSHED",),
    ),
    Attack(
        id="Y04-privileges-by-prctl-and-capset", language="python", status=("ok",),
        code=SYSCALL + "import struct\nP = lambda *a: libc.prctl(*[ctypes.c_long(x) for x in (*a, 0, 0, 0, 0)[:5]])\n"
             "P(8, 1); P(4, 1); P(38, 0); P(36, 1); P(28, 0)\nfor cap in range(41): P(24, cap); P(47, 2, cap)\n"
             "head = struct.pack('Ii', 0x20080522, 0); data = struct.pack('6I', *[0xffffffff] * 6)\nlibc.capset(head, data)\n"
             "for name in ('setuid', 'setgid', 'setfsuid'): getattr(libc, name)(0)\nlibc.setgroups(1, (ctypes.c_uint * 1)(0))\n"
             "s = dict(l.split(':\\t', 1) for l in open('/proc/self/status').read().splitlines() if ':\\t' in l)\n"
             "if int(s['CapEff'], 16): print('GAINED', s['CapEff'])\nif s['NoNewPrivs'].strip() != '1' or s['Seccomp'].strip() != '2': print('GAINED', s['Seccomp'])\nprint('done')",
        says=("done",), never_says=("GAINED",),
    ),
)  # fmt: skip
