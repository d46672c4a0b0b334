"""Programs that take memory, of every kind that the kernel has. Each is bounded by itself."""

from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from tests.attacks.harness import SECRET, Attack

#: Where no control group counts memory that is shared without a file, it is refused: the program fails, at no limit.
REFUSED = find_hierarchies() is None
SHARED_STATUS, SHARED_LIMIT = (("failed",), None) if REFUSED else (("memory_exceeded",), "memory")

PROGRAMS = (
    Attack(
        id="R04", language="python", status=("memory_exceeded",), limit="memory",
        code="b=[]\nfor i in range(80): b.append(bytearray(b'x'*(50<<20)))",
    ),
    Attack(id="R05", language="python", status=("memory_exceeded",), limit="memory", code="x=bytearray(64<<30)"),
    Attack(
        id="R07", language="python", status=SHARED_STATUS, limit=SHARED_LIMIT,
        code="import mmap,os\ntry: fd=os.memfd_create('x')\nexcept OSError: fd=-1\nelse: os.ftruncate(fd,3<<30)\n"
             "m=mmap.mmap(fd,3<<30)\nfor i in range(0,3<<30,4096): m[i]=1",
    ),
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
    Attack(
        id="Y07-shared-by-children", language="c", status=SHARED_STATUS, limit=SHARED_LIMIT, timeout=30,
        code="#define _GNU_SOURCE\n#include <string.h>\n#include <sys/mman.h>\n#include <sys/wait.h>\n#include <unistd.h>\n"
             "int main(){for(int i=0;i<24;i++) if(fork()==0){char*p=mmap(0,48<<20,3,MAP_SHARED|MAP_ANONYMOUS,-1,0);"
             " if(p==MAP_FAILED) _exit(1); memset(p,1,48<<20); sleep(20); _exit(0);} int s, all=0; while(wait(&s)>0) all|=s; return all!=0;}",
    ),
    Attack(
        id="Y08-locked-memory", language="c", status=("ok", "failed", "memory_exceeded"), timeout=30,
        code="#define _GNU_SOURCE\n#include <stdio.h>\n#include <sys/mman.h>\n#include <sys/resource.h>\n"
             "int main(){struct rlimit all={RLIM_INFINITY,RLIM_INFINITY}; setrlimit(RLIMIT_MEMLOCK,&all); mlockall(MCL_CURRENT|MCL_FUTURE);"
             " for(int i=0;i<64;i++){char*p=mmap(0,16<<20,3,MAP_PRIVATE|MAP_ANONYMOUS|MAP_LOCKED|MAP_POPULATE,-1,0); if(p==MAP_FAILED){puts(\"refused\");return 0;}}"
             " puts(\"GOT ALL\"); return 0;}",
        never_says=("GOT ALL",),
    ),
    Attack(
        id="Y09-messages-between-processes", language="python", status=("ok", "failed", "memory_exceeded"),
        code="import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nsent = 0\nfor q in range(40000):\n  i = libc.msgget(0, 0o1600)\n  if i < 0: break\n"
             "  while libc.msgsnd(i, ctypes.create_string_buffer(b'\\1' + b'\\0' * 8191), 8184, 0o4000) == 0: sent += 8184\n"
             "for q in range(2000):\n  m = libc.mq_open(b'/q%d' % q, 0o102, 0o600, None)\n  if m < 0: break\n"
             "  libc.fcntl(m, 4, 0o4000)\n  while libc.mq_timedsend(m, b'x' * 8192, 8192, 0, (ctypes.c_long * 2)(0, 0)) == 0: sent += 8192\n"
             "print('held', sent < 1 << 30)",
    ),
    Attack(
        id="Y18-leaks-of-many-threads", language="rust", status=("memory_exceeded",), limit="memory", timeout=60,
        code="use std::thread;\nfn main(){let hs: Vec<_> = (0..8).map(|_| thread::spawn(|| { for _ in 0..64 { Box::leak(vec![1u8; 16 << 20].into_boxed_slice()); } })).collect(); for h in hs { let _ = h.join(); } println!(\"GOT ALL\"); }",
        never_says=("GOT ALL",),
    ),
    Attack(
        id="Y21-buffers-of-node", language="javascript", status=("memory_exceeded", "failed", "killed"), timeout=60, memory_mb=512,
        code="const held = []; for (let i = 0; i < 64; i++) { held.push(Buffer.alloc(64 << 20, 1)); } console.log('GOT ALL');",
        never_says=("GOT ALL",),
    ),
    Attack(
        id="Y27-lua-doubles-a-text", language="lua", status=("memory_exceeded", "failed"), timeout=20,
        code="local f = io.popen and io.popen('cat @SENTINELS@/secret.txt') if f then print(f:read('a')) end\nprint(pcall(package.loadlib, '@SENTINELS@/secret.txt', '*'))\n"
             "local s = string.rep('x', 1 << 20) for i = 1, 20 do s = s .. s end print('GOT ALL')",
        never_says=(SECRET, "GOT ALL"),
    ),
    Attack(
        id="Y30-sql-of-one-value", language="sql", status=("memory_exceeded", "failed"), timeout=20,
        code="WITH RECURSIVE t(x) AS (SELECT zeroblob(100000000) UNION ALL SELECT x || randomblob(100000000) FROM t) SELECT length(group_concat(hex(x))) FROM t LIMIT 5;",
        memory_mb=128,
    ),
)  # fmt: skip
