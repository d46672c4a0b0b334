"""The same small programs in the language of each kernel. None: the language or the kernel has no such feature."""

from __future__ import annotations

from dataclasses import dataclass

STARTED = "started"


@dataclass(frozen=True)
class Programs:
    """What the probes and the benchmark run. ``@FILE@``, ``@PORT@``, ``@PID@`` and ``@MARK@`` are filled in."""

    nothing: str
    hello: str
    slowly: str
    to_stderr: str
    error: str
    ask: str
    wait: str
    flood: str
    ten_megabytes: str
    incomplete: str
    invalid: str
    to_complete: str
    to_inspect: str
    expression: str
    leave_child: str
    escape: str
    value: str | None = None
    display: str | None = None
    update: str | None = None


PYTHON = Programs(
    nothing="pass",
    hello="print('hi')",
    slowly="import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.4)",
    to_stderr="import sys\nprint('e', file=sys.stderr)",
    error="1/0",
    ask="print('got', input('who? '))",
    wait=f"import time\nprint('{STARTED}', flush=True)\ntime.sleep(30)",
    flood="for i in range(100_000):\n    print(i)",
    ten_megabytes="line = 'x' * 99\nfor i in range(100_000):\n    print(line)",
    incomplete="def f(x):",
    invalid="import = 7q",
    to_complete="impor",
    to_inspect="print",
    expression="1+1",
    value="1+2",
    display="from IPython.display import display\nh = display('first', display_id='q')",
    update="from IPython.display import update_display\nupdate_display('second', display_id='q')",
    leave_child="""import subprocess
subprocess.Popen(["sleep", "@MARK@"], start_new_session=True)
print('left')""",
    escape="""import os, socket
def attempt(name, action):
    try:
        print(name, 'yes' if action() else 'no')
    except Exception:
        print(name, 'no')
def write():
    with open('@FILE@.written', 'w') as file:
        file.write('x')
    return True
attempt('read', lambda: 'secret' in open('@FILE@').read())
attempt('write', write)
attempt('connect', lambda: socket.create_connection(('127.0.0.1', @PORT@), 3))
attempt('environment', lambda: os.environ['CANARY'])
attempt('processes', lambda: os.path.isdir('/proc/@PID@'))""",
)

TYPESCRIPT = Programs(
    nothing="0;",
    hello="console.log('hi')",
    slowly="for (let i = 0; i < 3; i++) { console.log(i); await new Promise((done) => setTimeout(done, 400)) }",
    to_stderr="console.error('e')",
    error="throw new Error('x')",
    ask="console.log('got', prompt('who? '))",
    wait=f"console.log('{STARTED}'); await new Promise((done) => setTimeout(done, 30000))",
    flood="for (let i = 0; i < 100000; i++) console.log(i)",
    ten_megabytes="for (let i = 0; i < 100000; i++) console.log('x'.repeat(99))",
    incomplete="function f(",
    invalid="let = = 7",
    to_complete="conso",
    to_inspect="console",
    expression="1+1",
    value="1+2",
    display="""await Deno.jupyter.broadcast('display_data',
  {data: {'text/plain': 'first'}, metadata: {}, transient: {display_id: 'q'}})""",
    update="""await Deno.jupyter.broadcast('update_display_data',
  {data: {'text/plain': 'second'}, metadata: {}, transient: {display_id: 'q'}})""",
    leave_child="""new Deno.Command('setsid', {args: ['sleep', '@MARK@']}).spawn().unref(); console.log('left')""",
    escape="""{
const attempt = async (name: string, action: () => unknown) => {
  try { console.log(name, (await action()) ? 'yes' : 'no') } catch { console.log(name, 'no') }
};
await attempt('read', () => Deno.readTextFileSync('@FILE@').includes('secret'));
await attempt('write', () => { Deno.writeTextFileSync('@FILE@.written', 'x'); return true });
await attempt('connect', () => Deno.connect({hostname: '127.0.0.1', port: @PORT@}));
await attempt('environment', () => Deno.env.get('CANARY'));
await attempt('processes', () => Deno.statSync('/proc/@PID@').isDirectory);
}""",
)

BASH = Programs(
    nothing=":",
    hello="echo hi",
    slowly="for i in 0 1 2; do echo $i; sleep 0.4; done",
    to_stderr="echo e 1>&2",
    error="false",
    ask="read -p 'who? ' name; echo got $name",
    wait=f"echo {STARTED}; sleep 30",
    flood="seq 0 99999",
    ten_megabytes="yes $(printf 'x%.0s' {1..99}) | head -n 100000",
    incomplete="for i in 1 2; do",
    invalid="fi",
    to_complete="ech",
    to_inspect="echo",
    expression="echo 2",
    display="echo '<b>first</b>' | displayHTML q",
    update="echo '<b>second</b>' | displayHTML q",
    leave_child="setsid sleep @MARK@ > /dev/null 2>&1 & echo left",
    escape="""grep -q secret @FILE@ && echo read yes || echo read no
echo x > @FILE@.written && echo write yes || echo write no
(exec 3<>/dev/tcp/127.0.0.1/@PORT@) && echo connect yes || echo connect no
test -n "$CANARY" && echo environment yes || echo environment no
test -d /proc/@PID@ && echo processes yes || echo processes no""",
)

PROGRAMS = {"python": PYTHON, "typescript": TYPESCRIPT, "bash": BASH}
