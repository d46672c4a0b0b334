"""Programs that do not end by themselves, or burn processor time. Each is bounded by itself."""

from sandbox_kernel import Limits
from tests.attacks.harness import Attack

PROGRAMS = (
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
        id="Y22-an-expression-without-end", language="typescript", status=("timeout",), limit="timeout", timeout=4,
        code="const s: string = 'a'.repeat(60) + '!'; process.on('SIGTERM', () => {}); console.log(/^(a+)+$/.test(s));",
    ),
    Attack(
        id="Y23-ruby-that-does-not-end", language="ruby", status=("timeout",), limit="timeout", timeout=4,
        code="(1..31).each { |s| begin; trap(s, 'IGNORE'); rescue ArgumentError, SystemCallError; end }\nat_exit { loop {} }\nfork { Process.setsid; sleep 25 }\nThread.new { loop {} }\nexit 3",
    ),
    Attack(
        id="Y29-sql-without-end", language="sql", status=("timeout",), limit="timeout", timeout=3,
        code="WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t) SELECT count(*) FROM t;",
    ),
    Attack(
        id="Y31-a-shell-of-traps", language="command", status=("timeout",), limit="timeout", timeout=3,
        code="set -o functrace; trap 'while :; do :; done' EXIT HUP INT QUIT TERM ERR; trap 'kill -CONT $$' DEBUG; readonly PATH IFS; (exec 3<>/dev/tcp/@ADDRESS@/@TCP@) 2>/dev/null && echo CONNECTED;"
             " (echo x > /dev/udp/@ADDRESS@/@UDP@) 2>/dev/null; ulimit -Hn unlimited 2>/dev/null && echo RAISED; false; exit 3",
        never_says=("CONNECTED", "RAISED"),
    ),
    Attack(
        id="Y34-no-vdso-and-no-lists", language="c", status=("killed", "ok"), timeout=30,
        code="#define _GNU_SOURCE\n#include <sys/auxv.h>\n#include <sys/mman.h>\n#include <sys/syscall.h>\n#include <unistd.h>\nint main(){syscall(SYS_set_robust_list,(void*)-4096,24); munmap((void*)getauxval(AT_SYSINFO_EHDR),8192);"
             " syscall(SYS_set_tid_address,(void*)-8); if(fork()==0) _exit(0); syscall(SYS_exit_group,0);}",
    ),
)  # fmt: skip
