"""What the frames of the report try in the user's browser, and the page in which they try it. Pure.

Only attempts that do no harm where a browser lets them through: they ask for nothing, store nothing and go to no other
host. ``tests/browser/frames/frame_probes`` has many more.
"""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

from sandbox_kernel.untrusted.frames.document import frame

LOAD, LEAVE = "load something", "go to another page"
ASIDE, READ = "connect without a request", "read the page around it"

#: By line of the report: the name of each attempt and its code. U, TCP and UDP are addresses of listeners; ``got`` says
#: that something was read. The first one of each line is also tried outside of a frame: it must be noticed.
ATTEMPTS = {
    LOAD: {
        "fetch": "fetch(U, {mode: 'no-cors'})",
        "XMLHttpRequest": "const x = new XMLHttpRequest(); x.open('GET', U); x.send()",
        "WebSocket": "new WebSocket(U.replace('http', 'ws'))",
        "EventSource": "new EventSource(U)",
        "beacon": "navigator.sendBeacon(U, 'x')",
        "picture": "new Image().src = U",
        "script": "add('script', {src: U})",
        "style sheet": "add('link', {rel: 'stylesheet', href: U})",
        "font": "add('style', {textContent: '@font-face{font-family:q;src:url(' + U + ')} body{font-family:q}'})",
        "video": "add('video', {src: U, autoplay: true})",
        "frame": "add('iframe', {src: U})",
        "module": "import(U)",
        "worker": "new Worker(URL.createObjectURL(new Blob(['fetch(\"' + U + '\", {mode: \"no-cors\"})'])))",
    },
    LEAVE: {
        "location": "location = U",
        "link": "add('a', {href: U}).click()",
        "refresh": "add('meta', {httpEquiv: 'refresh', content: '0;url=' + U})",
        "form": "add('form', {action: U}).submit()",
        "navigation": "navigation.navigate(U)",
    },
    ASIDE: {
        "WebRTC": (
            "const p = new RTCPeerConnection({iceServers: [{urls: 'stun:' + UDP}]}); p.createDataChannel('x');"
            "p.createOffer().then((offer) => p.setLocalDescription(offer))"
        ),
        "preconnect": "add('link', {rel: 'preconnect', href: TCP})",
        "preconnect in markup": "document.body.innerHTML = '<' + 'link rel=preconnect href=' + TCP + '>'",
    },
    READ: {
        "its title": "got(parent.document.title)",
        "its cookies": "got(document.cookie + top.document.cookie)",
        "storage": "got(String(localStorage.length))",
    },
}

_HELPERS = """
const U = %(url)s, TCP = %(tcp)s, UDP = %(udp)s;
const say = (what) => parent.postMessage({type: 'refused', what, host: %(name)s, from: %(where)s}, '*');
const got = () => say('read');
const add = (tag, fields) => document.body.appendChild(Object.assign(document.createElement(tag), fields));
say('began');
try { %(code)s } catch (error) {}
"""


@dataclass(frozen=True, kw_only=True)
class Addresses:
    """Where one kind of frame finds its listeners."""

    url: str
    tcp: str
    udp: str


def attempt_script(name: str, code: str, where: str, to: Addresses) -> str:
    """Return the markup of one attempt."""
    values = {
        "url": f"{to.url}/{where}/{name.replace(' ', '-')}", "tcp": to.tcp, "udp": to.udp, "name": name, "where": where,
    }  # fmt: skip
    text = _HELPERS % {**{key: json.dumps(value) for key, value in values.items()}, "code": code}
    return f"<body><script>{text.replace('</', '<' + chr(92) + '/')}</script>"


def attempt_page(inside: Addresses, outside: Addresses, done: str) -> str:
    """Return the page: it shows the frames one group after the other, and sends what they said to ``done``."""
    firsts = {line: next(iter(attempts)) for line, attempts in ATTEMPTS.items()}
    control = [
        f'<iframe srcdoc="{html.escape(attempt_script(name, ATTEMPTS[line][name], "control", outside))}"></iframe>'
        for line, name in firsts.items()
    ]
    frames = [
        frame([{"type": "show", "html": attempt_script(name, code, "frame", inside)}], 40)
        for attempts in ATTEMPTS.values()
        for name, code in attempts.items()
    ]
    # As JSON inside a script: markup in it must not end the script.
    data = json.dumps({"control": control, "frames": frames, "done": done}).replace("<", "\\u003c")
    return _page_text().replace("DATA", data)


@cache
def _page_text() -> str:
    return resources.files(__package__).joinpath("attempts.html").read_text("utf-8")
