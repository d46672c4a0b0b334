"""Cells that attack their own session: its worker, channel, checkpoints and libraries. All leave the session usable.

``BACK``: the cell is taken back. ``STAYS``: it is not. ``EITHER``: that depends on when its blow falls.
"""

BACK, STAYS, EITHER = (True,), (False,), (True, False)

#: The worker's own object, as a cell can find it.
WORKER = (
    "import gc, json, os, signal, socket, struct, threading, time\n"
    "worker = next(o for o in gc.get_objects() if type(o).__name__ == 'Worker' and hasattr(o, 'freezer'))\n"
)
DISPLAY = (
    "{'op': 'display', 'id': worker.cell, 'question': 0, 'kind': 'display', 'data': {'text/plain': 'x' * 1000}, "
    "'metadata': {}, 'display_id': None}"
)

PYTHON: dict[str, tuple[str, tuple[bool, ...]]] = {
    "forges a state that was restored": (
        WORKER + "worker.channel.send({'op': 'restored', 'cell': 0, 'pid': 1, 'names': 1, 'threads': 0})",
        BACK,
    ),
    "forges a worker that is ready": (WORKER + "worker.channel.send({'op': 'ready', 'pid': 1, 'names': 1})", BACK),
    "takes the pid of another": (WORKER + "worker.pid = 1", BACK),
    "forges its checkpoints": (
        WORKER + "worker.freezer.freeze = lambda: (os.getpid(), type('Marks', (), {'threads': 0})())",
        STAYS,
    ),
    "shows without end and without waiting": (
        WORKER + f"while True: worker.channel.send({DISPLAY})",
        BACK,
    ),
    "nests a display without end": (
        "import sys\nsys.setrecursionlimit(10**6)\nx = []\nfor _ in range(700): x = [x]\nfrom IPython.display import display\ndisplay({'application/json': x}, raw=True)",
        BACK,
    ),
    "sends descriptors to the host": (
        WORKER + f"m = json.dumps({DISPLAY}).encode()\n"
        "for i in range(20): socket.send_fds(worker.channel._socket, [struct.pack('>I', len(m)) + m], [0, 1, 2] * 80)",
        EITHER,
    ),
    "lets a child answer for it": ("import os\nif os.fork(): os._exit(0)", BACK),
    "returns twice from vfork": ("import ctypes\nctypes.CDLL(None).vfork()", BACK),
    "puts another socket in the channel's place": (
        WORKER + "a, b = socket.socketpair()\nos.dup2(a.fileno(), worker.channel._socket.fileno())",
        BACK,
    ),
    "keeps the channel's lock": (WORKER + "worker.channel.lock.acquire()", BACK),
    "makes the channel impatient": (WORKER + "worker.channel._socket.settimeout(0.001)", EITHER),
    "refuses everything by an audit hook": (
        "import sys\ndef refuse(*a): raise RuntimeError('no')\nsys.addaudithook(refuse)",
        STAYS,
    ),
    "traces the worker's loop": (
        "import sys\ndef refuse(*a): raise RuntimeError('no')\nsys.settrace(refuse); sys.setprofile(refuse)",
        EITHER,
    ),
    "fails in every collection": ("import gc\ngc.callbacks.append(lambda *a: 1 / 0)\ngc.set_threshold(1)", STAYS),
    "waits in a finalizer": (
        "import time\nclass D:\n  def __del__(self):\n    while True: time.sleep(1)\nd = D(); del d",
        BACK,
    ),
    "waits in the text of its error": (
        "class E(Exception):\n  def __str__(self):\n    while True: pass\nraise E",
        BACK,
    ),
    "leaves in the text of its error": (
        "class E(Exception):\n  def __str__(self): raise SystemExit(9)\nraise E",
        STAYS,
    ),
    "has an error without a name": (
        "class M(type):\n  __name__ = property(lambda s: 1 / 0)\nclass E(Exception, metaclass=M): pass\nraise E",
        STAYS,
    ),
    "has an error of 200 MB": ("raise ValueError('x' * (200 << 20))", EITHER),
    "has an alarm that rings later": (
        "import signal\nsignal.signal(signal.SIGALRM, lambda *a: 1 / 0)\nsignal.setitimer(signal.ITIMER_REAL, 0.1, 0.01)",
        STAYS,
    ),
    "prints for ever on a thread": (
        "import os, threading\ndef f():\n  while True: os.write(2, b'late' * 1000)\nthreading.Thread(target=f, daemon=True).start()",
        STAYS,
    ),
    "may open nothing": ("import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))", EITHER),
    "ends itself by a limit of its own": (
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
        BACK,
    ),
    "does not wait for its pipes": (
        "import os\nfor fd in (0, 1, 2): os.set_blocking(fd, False)\nfor i in range(100):\n  try: os.write(2, b'x' * 100000)\n  except OSError: pass",
        STAYS,
    ),
    "forgets the worker's modules": (
        "import sys\nfor n in list(sys.modules):\n  if n.startswith('sandbox_guest'): del sys.modules[n]",
        STAYS,
    ),
    "steals the end of its cells": (WORKER + "type(worker).finish = lambda *a: None", STAYS),
    "lies about its signals": (
        "import signal\nsignal.pthread_sigmask = lambda *a: set()\nsignal.sigpending = lambda: {2}\nsignal.sigwait = lambda *a: 2",
        STAYS,
    ),
}

COMMAND: dict[str, tuple[str, tuple[bool, ...]]] = {
    "waits in its last trap": ("trap 'sleep 60' EXIT", BACK),
    "leaves in a trap": ("trap 'exit 5' DEBUG", STAYS),
    "becomes another program": ("exec sleep 0.1", STAYS),
    "reads and does nothing": ("set -n", STAYS),
    "closes its streams": ("exec 0<&- 1>&- 2>&-", STAYS),
    "kills its worker": ("kill -9 $PPID", BACK),
    "stops its worker": ("kill -STOP $PPID", BACK),
    "redefines the builtins": (
        "declare() { :; }; builtin() { :; }; printf() { :; }; export() { :; }; set() { :; }; shopt() { :; }; command() { :; }",
        EITHER,
    ),
    "switches the builtins off": ("enable -n declare printf set shopt trap export builtin", STAYS),
    "freezes every variable": ("for v in $(compgen -v); do readonly $v 2>/dev/null; done", STAYS),
    "has a state of 20 MB": ("x=$(head -c 20000000 /dev/zero | tr '\\0' a)", STAYS),
    "puts pipes in its state's place": (
        "d=$(echo ${TMPDIR:-/tmp}/.shell-*); (while :; do for p in shopt names set; do rm -f $d/after.$p; mkfifo $d/after.$p; done; done 2>/dev/null) & sleep 0.3",
        EITHER,
    ),
    "puts an endless file in its state's place": (
        "for d in ${TMPDIR:-/tmp}/.shell-*; do for p in shopt names set; do ln -sf /dev/zero $d/after.$p; done; done; exec true",
        STAYS,
    ),
    "removes what the worker needs": ("rm -rf /tmp/.shell-* /cell/* /tmp/* 2>/dev/null; :", STAYS),
    "may write nothing": ("ulimit -f 0; ulimit -n 4; ulimit -v 1000", STAYS),
    "loads a library that is none": ("PATH=/nowhere; IFS=x; export LD_PRELOAD=/box/x.so; cd /", STAYS),
}

JAVASCRIPT: dict[str, tuple[str, tuple[bool, ...]]] = {
    "pollutes every prototype": (
        "Object.prototype.then = function () {}; Object.prototype.toJSON = () => 1; Array.prototype.push = null; String.prototype.split = null;",
        EITHER,
    ),
    "breaks JSON and buffers": (
        "JSON.stringify = () => '{}'; JSON.parse = () => null; Buffer.concat = null; Buffer.from = null;",
        EITHER,
    ),
    "forges a frame of 2 GB": (
        "const fs = require('fs'); for (let i = 3; i < 64; i++) { try { fs.writeSync(i, Buffer.from([0x7f, 255, 255, 255])) } catch {} }",
        BACK,
    ),
    "closes every descriptor": (
        "const fs = require('fs'); for (let i = 3; i < 64; i++) { try { fs.closeSync(i) } catch {} }",
        BACK,
    ),
    "promises without end": ("const f = () => Promise.resolve().then(f); f();", BACK),
    "throws on a timer": ("setInterval(() => { throw 1 }, 10); 0", STAYS),
    "waits when it is shown": ("({ [require('util').inspect.custom]() { while (true); } })", BACK),
    "throws a thing that throws": ("throw { get stack() { throw 1 }, get message() { throw 2 } }", STAYS),
    "nests a value without end": ("let x = []; for (let i = 0; i < 1e6; i++) x = [x]; x", EITHER),
    "deletes every global": (
        "for (const k of Object.getOwnPropertyNames(globalThis)) { try { delete globalThis[k] } catch {} }",
        EITHER,
    ),
    "starts threads without end": (
        "const { Worker } = require('worker_threads'); for (let i = 0; i < 30; i++) new Worker('while(true);', { eval: true }).on('error', () => {})",
        EITHER,
    ),
}
CELLS = {"python": PYTHON, "command": COMMAND, "javascript": JAVASCRIPT}

FORGE = "import os, json, struct\nfor fd in range(3, 64):\n  try: os.write(fd, {data})\n  except OSError: pass"

#: Python cells after which the very next cell finds the state: by what they do, the cell and whether it is taken back.
KEPT_AT_ONCE: dict[str, tuple[str, bool]] = {
    "returns twice from a fork": ("import os\npid = os.fork()", False),
    "raises in a forked child": ("import os, time\nif os.fork() == 0: raise ValueError\ntime.sleep(0.2)", False),
    "kills everybody": ("import os\nos.kill(-1, 9)", False),
    "terminates everybody": ("import os\nos.kill(-1, 15)", False),
    "stops everybody": ("import os\nos.kill(-1, 19)", False),
    "stops itself": ("import os\nos.kill(os.getpid(), 19)", True),
    "closes every descriptor": ("import os\nos.closerange(0, 1024)", True),
    "puts its output over every descriptor": ("import os\nfor fd in range(3, 64): os.dup2(1, fd)", True),
    "forges an end": (
        FORGE.format(data="(lambda m: struct.pack('>I', len(m)) + m)(json.dumps({'op': 'done', 'id': 9}).encode())"),
        True,
    ),
    "forges a frame of 2 GB": (FORGE.format(data="b'\\x7f\\xff\\xff\\xff'"), True),
    "forges half a frame": (FORGE.format(data="b'\\0\\0\\0\\x40{\"op\":'") + "\nimport time; time.sleep(0.3)", True),
    "breaks the built-in functions": ("import builtins\nbuiltins.len = builtins.isinstance = None", True),
    "breaks json": ("import json\njson.dumps = json.loads = None", False),
    "breaks sockets and structs": ("import socket, struct\nsocket.socket.recv = None; struct.pack = None", False),
    "breaks fork and exit": ("import os\nos.fork = lambda: 1/0\nos._exit = lambda c: None\nos.waitpid = None", False),
    "replaces the display hook": ("import sys\nsys.displayhook = lambda x: exit(5)\n42", False),
    "ends its process after the cell": (
        "get_ipython().events.register('post_execute', lambda: __import__('os')._exit(3))",
        True,
    ),
    "ignores every signal": (
        "import signal\nfor s in range(1, 32):\n  if s not in (9, 19): signal.signal(s, signal.SIG_IGN)",
        False,
    ),
    "blocks every signal": ("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))", False),
    "becomes another program": ("import os\nos.execv('/bin/sleep', ['sleep', '0.1'])", True),
    "removes its folder": ("import os, shutil\nos.mkdir('/box/x'); os.chdir('/box/x'); shutil.rmtree('/box/x')", False),
    "closes its folder": ("import os\nos.chmod('/box', 0)", False),
    "never hands the interpreter on": (
        (
            "import sys, threading\nsys.setswitchinterval(1000)\n"
            "threading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start()\nwhile True: pass"
        ),
        True,
    ),
    "holds every process": (
        "import subprocess\nheld = []\ntry:\n  while True: held.append(subprocess.Popen(['sleep', '60']))\nexcept OSError: pass",
        False,
    ),
    "waits in its repr": ("class R:\n  def __repr__(self):\n    while True: pass\nR()", True),
}
