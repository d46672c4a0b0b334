"""Texts of every type that reaches a page, made from the pieces that attacks are made of. The same seed gives the same."""

import random

ALARM = "window.alarm=(window.alarm||0)+1"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAoAAAAKCAIAAAACUFjqAAAAEklEQVR4nGP4z8CAB+GTG8HSALfKY52fTcuYAAAAAElFTkSuQmCC"
IMAGE = f"data:image/png;base64,{PNG}"

_BREAKOUTS = [
    f'" onload="{ALARM}" x="', f"' onerror='{ALARM}' x='", f'" onmouseover="{ALARM}" autofocus tabindex=1 onfocus="{ALARM}"',
    f'"><img src=x onerror="{ALARM}">', f"`onload={ALARM}`", f'" style="position:fixed;top:0" onanimationstart="{ALARM}"',
    "&quot; onload=&quot;", "\\\" onload=\\\"", "\u0022 onload=\u0022", f"</title><script>{ALARM}</script>",
]  # fmt: skip
_HTML = [
    f"<script>{ALARM}</script>", f'<img src=x onerror="{ALARM}">', f"<svg onload={ALARM}>", "</svg>", "<math>", "<mtext>",
    "<mglyph>", "<style>", "</style>", "<!--", "-->", "--!>", "<!-->", "<table>", "<tr>", "<td>", "</table>", "<p>", "</p>",
    "<b>", "</b>", "<a href='", f"javascript:{ALARM}", "'>", '">', "<template>", "<title>", "</title>", "<textarea>",
    "</textarea>", "<noscript>", "</noscript>", "<xmp>", "<iframe srcdoc='", "<form>", "<input autofocus onfocus=", "<select>",
    "<option>", "<details open ontoggle=", ">", "<", "/", "=", '"', "'", "&lt;", "&#60;", "&#x3c;script&gt;", "\x00", "\n",
    "<base href=//alarm.invalid/>", "<link rel=stylesheet href=/alarm>", "<meta http-equiv=refresh content='0;url=/alarm'>",
    "<a href='/logout'>x</a>", "<a href='../api/shutdown'>x</a>", "<a href='//alarm.invalid'>x</a>", "<a href='?reset'>x</a>",
    "<div id=jupyter-config-data class='jp-Dialog mathjax_process' name=x>", "</div>", f"<img src='{IMAGE}' ", "<li>", "<ul>",
    "<h1>", "<pre>", "<code>", "<caption>", "<colgroup>", "<col>", "<![CDATA[", "]]>", "<?xml ?>", "<plaintext>", "<frameset>",
    "<b style='background:url(/alarm)'>", "<b style='margin-top:-500px;position:fixed'>", "<button data-commandlinker-command=x>",
    "<object data=/alarm>", "<embed src=/alarm>", "<video src=/alarm autoplay onerror=", "<image src=x onerror=", "<body onload=",
]  # fmt: skip
_TEX = [
    "$", "$$", "\\(", "\\)", "\\[", "\\]", "\\\\(", "\\\\)", "{", "}", "x", "\\frac{1}{2}", "\\begin{align}", "\\end{align}",
    f"\\href{{javascript:{ALARM}}}{{x}}", "\\class{jp-Dialog}{x}", "\\style{position:fixed}{x}", "\\cssId{main}{x}",
    "\\def\\frac{y}", "\\gdef\\alpha{y}", "\\newcommand{\\alpha}{y}", "\\definecolor{red}{RGB}{0,200,0}", "\\require{html}",
    "\\fcolorbox{red;position:fixed;top:0;left:0}{red}{x}", "\\unicode[x;position:fixed]{65}", "\\bbox[position:fixed]{x}",
    "\\mmlToken{mi}[href='javascript:1']{x}", "\\label{a}", "\\ref{a}", "\\eqref{a}", "\\tag{1}", "\\raise500em{x}", "\\kern-500em",
    "\\rule{500em}{500em}", "\\llap{x}", "^^5chref", "\\hr%\nef", "\\hr ef", "\\text{$", "\\verb|x|", "\\let\\a=b", "\\color{red}",
    "\\toggle{x}{y}\\endtoggle", "\\mathtip{x}{y}", "\\ce{A->[\\href{x}{y}]}", "\\includegraphics{/alarm}", "\\input{/etc/passwd}",
    "\\setOptions[base]{x=y}", "\\DeclareMathOperator{\\sin}{x}", "\\Newextarrow{\\x}{1,1}{0x21}", "&#92;href{x}{y}", "<br>",
    "\\\\[-500em]", "\\hspace{-500em}", "\\enclose{box}[mathcolor='red' onclick='x']{y}", "\\data{onclick=x}{y}",
]  # fmt: skip
_MARKDOWN = [
    f"![a]({IMAGE})", "[a](", ")", "[a](http://x.org '", "')", "![", "](", "]", "[a]: /logout", "[a]", "[a][a]", "# ", "- ", "1. ",
    "> ", "```", "~~~", "```mermaid\ngraph TD\n```", "``", "`", "*", "**", "_", "~~", "|a|b|\n|-|-|\n|", "|", "\n", "\n\n", "    ",
    "<https://x.org/", ">", "https://x.org/", "<javascript:alert(1)>", f"[x](javascript:{ALARM})", "[x](j&#97;vascript:1)",
    "[x](/api/shutdown)", "[x](../logout)", "[x](?a)", "[x](#main)", "[x](//alarm.invalid)", "![x](/alarm)", "\\", "&quot;", "&#34;",
    "{.class #id onclick=x}", "[^1]: ", "[^1]", "<div>", "</div>", ":::", "---", "===", "[x]{onclick=1}", "$`", "`$",
]  # fmt: skip
_SVG = [
    "<script>", "</script>", f"<path d='M0 0' onclick='{ALARM}'/>", "<a xlink:href='javascript:1'>", "</a>", "<g>", "</g>",
    "<use href='#a'/>", "<use href='/alarm#a'/>", f"<image href='/alarm' onerror='{ALARM}'/>", f"<animate onbegin='{ALARM}'/>",
    "<set attributeName='href' to='javascript:1'/>", "<foreignObject><img src='x' onerror='1'/></foreignObject>", "<style>",
    "</style>", "<title>", "</title>", "<rect fill='url(/alarm)'/>", "<rect style='fill:url(/alarm)'/>", "text", "&lt;b&gt;",
    "<![CDATA[<script>1</script>]]>", "<!--", "-->", "<rect id='a' filter='url(#b)'/>", "<filter id='b'><feImage href='/alarm'/></filter>",
    "<?xml-stylesheet href='/alarm'?>", "<text x='1'>", "</text>", "<h:script xmlns:h='http://www.w3.org/1999/xhtml'>1</h:script>",
]  # fmt: skip
_PLAIN = [
    "\x1b[31m", "\x1b[0m", "\x1b]8;;javascript:1\x07", "\x1b]8;;\x07", "https://x.org/", "www.x.org", "http://a\"onclick=1", "<b>",
    "file:///etc/passwd", "/etc/passwd:1", 'File "/etc/passwd", line 1', "\b", "\r", "\n", "javascript:1", f"javascript://%0a{ALARM}", "<script>", "&lt;", "\"",
    "http://x'><img src=x onerror=1>", "\x1b[38;5;1m", "\x1b[38;2;\"onclick;1m", "a", " ", "$", "ftp://x", "mailto:x@y",
]  # fmt: skip


def texts(seed: int, count: int) -> list[tuple[str, str]]:
    """Pairs of a MIME type and a hostile text."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        kind = ("text/markdown", "text/html", "text/latex", "image/svg+xml", "text/plain", "text/markdown")[number % 6]
        made.append((kind, _make(kind, chance)))
    return made


def _make(kind: str, chance: random.Random) -> str:
    pieces = {
        "text/markdown": _MARKDOWN * 2 + _TEX + _BREAKOUTS * 3 + _HTML,
        "text/html": _HTML * 2 + _TEX + _BREAKOUTS,
        "text/latex": _TEX + _BREAKOUTS,
        "image/svg+xml": _SVG,
        "text/plain": _PLAIN + _BREAKOUTS,
    }[kind]
    text = "".join(chance.choice(pieces) for _ in range(chance.randint(1, 14)))
    if kind == "text/latex":
        return f"${text}$" if chance.random() < 0.5 else text
    if kind == "image/svg+xml":
        return f"<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink'>{text}</svg>"
    if kind == "text/markdown" and chance.random() < 0.5:
        breakout = f"${chance.choice(_BREAKOUTS)}$"
        frame = chance.choice(
            [f"![{{}}]({IMAGE})", "[x](http://x.org '{}')", "see https://x.org/{} for", "```{}\ncode\n```", "[{}]: http://x.org",
             "[x](<http://x.org/{}>)", "# {}", "|{}|\n|-|\n|{}|", "`{}`", "**{}**", "<http://x.org/{}>", "- {}", "> {}"]
        )  # fmt: skip
        text += "\n\n" + frame.replace("{}", breakout)
    return text
