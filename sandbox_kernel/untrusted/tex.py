r"""Checks formulas: allows only TeX commands that draw.

JupyterLab passes every formula of an output, in ``text/latex`` and in HTML text, to MathJax with all its packages.
There ``\href`` makes links, ``\class`` and ``\style`` use the page's styles, ``\fcolorbox`` writes CSS, ``\def`` and
``\definecolor`` change the user's formulas further down, and ``\raise`` draws over other cells. nbconvert copies
``text/latex`` into LaTeX documents, where ``\input`` reads files, and into Markdown, where it may be HTML. So a formula
may use only the names below: commands of MathJax's packages base, ams, boldsymbol, braket, cancel, extpfeil and
mathtools that do not link, style, name, count, load, define, draw twice, or move things out of their place. One with
any other name is shown as its source.
"""

from __future__ import annotations

import re
from html import escape

from sandbox_kernel.untrusted import ContentRefused

_STRUCTURE = (
    "displaystyle textstyle scriptstyle scriptscriptstyle rm mit oldstyle cal it bf bbFont scr frak sf tt mathrm "
    "mathup mathnormal mathbf mathbfup mathit mathbfit mathbb Bbb mathfrak mathbffrak mathscr mathbfscr mathsf "
    "mathsfup mathbfsf mathbfsfup mathsfit mathbfsfit mathtt mathcal mathbfcal symrm symup symnormal symbf symbfup "
    "symit symbfit symbb symfrak symbffrak symscr symbfscr symsf symsfup symbfsf symbfsfup symsfit symbfsfit symtt "
    "symcal symbfcal textrm textup textnormal textit textbf textsf texttt tiny Tiny scriptsize small normalsize large "
    "Large LARGE huge Huge arcsin arccos arctan arg cos cosh cot coth csc deg det dim exp gcd hom inf ker lg lim "
    "liminf limsup ln log max min Pr sec sin sinh sup tan tanh limits nolimits overline underline overbrace "
    "underbrace overparen underparen overrightarrow underrightarrow overleftarrow underleftarrow overleftrightarrow "
    "underleftrightarrow overset underset overunderset stackrel stackbin over overwithdelims atop atopwithdelims "
    "brace brack choose frac sqrt root left right middle enspace quad qquad thinspace "
    "negthinspace big Big bigg Bigg bigl Bigl biggl Biggl bigr Bigr biggr Biggr bigm Bigm biggm Biggm mathord mathop "
    "mathopen mathclose mathbin mathrel mathpunct mathinner vcenter buildrel hbox text mbox boxed phantom vphantom "
    "hphantom acute grave ddot tilde bar breve check hat vec dot widetilde widehat matrix array pmatrix cases cr "
    "newline hline hdashline bmod pmod mod pod iff TeX LaTeX not dots space nonumber mathring nobreakspace "
    "negmedspace negthickspace idotsint dddot ddddot sideset boxed tag notag substack injlim projlim varliminf "
    "varlimsup varinjlim varprojlim operatorname genfrac frac tfrac dfrac binom tbinom dbinom cfrac shoveleft "
    "shoveright xrightarrow xleftarrow implies impliedby smash strut mathstrut hfill "
)
_EXTRAS = (
    "bra ket braket set Bra Ket Braket Set ketbra Ketbra boldsymbol cancel bcancel xcancel cancelto xleftrightarrow "
    "xLeftarrow xRightarrow xLeftrightarrow xhookleftarrow xhookrightarrow xmapsto xrightharpoondown xleftharpoondown "
    "xrightleftharpoons xrightharpoonup xleftharpoonup xleftrightharpoons centercolon "
    "ordinarycolon coloneqq Coloneqq coloneq Coloneq eqqcolon Eqqcolon eqcolon Eqcolon colonapprox Colonapprox "
    "colonsim Colonsim dblcolon nuparrow ndownarrow bigtimes splitfrac splitdfrac xmathstrut prescript "
    "xtwoheadrightarrow xtwoheadleftarrow xlongequal xtofrom "
)
_SYMBOLS = (
    "iiiint lvert rvert lVert rVert digamma varkappa varGamma varDelta varTheta varLambda varXi varPi varSigma "
    "varUpsilon varPhi varPsi varOmega beth gimel daleth backprime hslash varnothing blacktriangle triangledown "
    "blacktriangledown square Box blacksquare lozenge Diamond blacklozenge circledS bigstar sphericalangle "
    "measuredangle nexists complement mho eth Finv diagup Game diagdown Bbbk yen circledR checkmark maltese dotplus "
    "ltimes smallsetminus rtimes Cap doublecap leftthreetimes Cup doublecup rightthreetimes barwedge curlywedge "
    "veebar curlyvee doublebarwedge boxminus circleddash boxtimes circledast boxdot circledcirc boxplus centerdot "
    "divideontimes intercal leqq geqq leqslant geqslant eqslantless eqslantgtr lesssim gtrsim lessapprox gtrapprox "
    "approxeq lessdot gtrdot lll llless ggg gggtr lessgtr gtrless lesseqgtr gtreqless lesseqqgtr gtreqqless doteqdot "
    "Doteq eqcirc risingdotseq circeq fallingdotseq triangleq backsim thicksim backsimeq thickapprox subseteqq "
    "supseteqq Subset Supset sqsubset sqsupset preccurlyeq succcurlyeq curlyeqprec curlyeqsucc precsim succsim "
    "precapprox succapprox vartriangleleft lhd vartriangleright rhd trianglelefteq unlhd trianglerighteq unrhd vDash "
    "Vdash Vvdash smallsmile shortmid smallfrown shortparallel bumpeq between Bumpeq pitchfork varpropto backepsilon "
    "blacktriangleleft blacktriangleright therefore because eqsim vartriangle Join nless ngtr nleq ngeq nleqslant "
    "ngeqslant nleqq ngeqq lneq gneq lneqq gneqq lvertneqq gvertneqq lnsim gnsim lnapprox gnapprox nprec nsucc "
    "npreceq nsucceq precneqq succneqq precnsim succnsim precnapprox succnapprox nsim ncong nshortmid nshortparallel "
    "nmid nparallel nvdash nvDash nVdash nVDash ntriangleleft ntriangleright ntrianglelefteq ntrianglerighteq "
    "nsubseteq nsupseteq nsubseteqq nsupseteqq subsetneq supsetneq varsubsetneq varsupsetneq subsetneqq supsetneqq "
    "varsubsetneqq varsupsetneqq leftleftarrows rightrightarrows leftrightarrows rightleftarrows Lleftarrow "
    "Rrightarrow twoheadleftarrow twoheadrightarrow leftarrowtail rightarrowtail looparrowleft looparrowright "
    "leftrightharpoons rightleftharpoons curvearrowleft curvearrowright circlearrowleft circlearrowright Lsh Rsh "
    "upuparrows downdownarrows upharpoonleft upharpoonright downharpoonleft restriction multimap downharpoonright "
    "leftrightsquigarrow rightsquigarrow leadsto dashrightarrow dashleftarrow nleftarrow nrightarrow nLeftarrow "
    "nRightarrow nleftrightarrow nLeftrightarrow ulcorner urcorner llcorner lrcorner lparen rparen alpha beta gamma "
    "delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma tau upsilon phi chi psi omega "
    "varepsilon vartheta varpi varrho varsigma varphi S aleph hbar imath jmath ell wp Re Im partial infty prime "
    "emptyset nabla top bot angle triangle backslash forall exists neg lnot flat natural sharp clubsuit diamondsuit "
    "heartsuit spadesuit surd coprod bigvee bigwedge biguplus bigcap bigcup int intop iint iiint prod sum bigotimes "
    "bigoplus bigodot oint bigsqcup smallint triangleleft triangleright bigtriangleup bigtriangledown wedge land vee "
    "lor cap cup ddagger dagger sqcap sqcup uplus amalg diamond bullet wr div divsymbol odot oslash otimes ominus "
    "oplus mp pm circ bigcirc setminus cdot ast times star propto sqsubseteq sqsupseteq parallel mid dashv vdash leq "
    "le geq ge lt gt succ prec approx succeq preceq supset subset supseteq subseteq in ni notin owns gg ll sim simeq "
    "perp equiv asymp smile frown ne neq cong doteq bowtie models notChar Leftrightarrow Leftarrow Rightarrow "
    "leftrightarrow leftarrow gets rightarrow to mapsto leftharpoonup leftharpoondown rightharpoonup rightharpoondown "
    "nearrow searrow nwarrow swarrow hookrightarrow hookleftarrow longleftarrow Longleftarrow longrightarrow "
    "Longrightarrow Longleftrightarrow longleftrightarrow longmapsto ldots cdots vdots ddots dotsc dotsb dotsm dotsi "
    "dotso ldotp cdotp colon Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega And lmoustache rmoustache "
    "lgroup rgroup arrowvert Arrowvert bracevert Vert vert uparrow downarrow updownarrow Uparrow Downarrow "
    "Updownarrow rangle langle rbrace lbrace rceil lceil rfloor lfloor lbrack rbrack "
)
_ENVIRONMENTS = (
    "Bmatrix Bmatrix* Bsmallmatrix Bsmallmatrix* Vmatrix Vmatrix* Vsmallmatrix Vsmallmatrix* align align* alignat "
    "alignat* aligned alignedat array bmatrix bmatrix* bsmallmatrix bsmallmatrix* cases cases* dcases dcases* drcases "
    "drcases* eqnarray eqnarray* equation equation* flalign flalign* gather gather* gathered lgathered matrix matrix* "
    "multline multline* multlined pmatrix pmatrix* psmallmatrix psmallmatrix* rcases rcases* rgathered smallmatrix "
    "smallmatrix* split subarray vmatrix vmatrix* vsmallmatrix vsmallmatrix* xalignat xalignat* xxalignat "
)

COMMANDS = frozenset(f"{_STRUCTURE}{_EXTRAS}{_SYMBOLS}".split())
ENVIRONMENTS = frozenset(_ENVIRONMENTS.split())


MAX_LATEX = 64 << 10
#: Most signs and commands of one output, and of all outputs of a cell: each takes a page a tenth of a millisecond.
MAX_TOKENS = 20_000
#: Most formula delimiters. A page searches the end of each formula: many starts without an end take it minutes.
MAX_DELIMITERS = 400
#: Most formula signs in one HTML output; each may need an element around it.
MAX_SIGNS = 20_000
#: Deepest nesting of braces, ``\\left`` and environments: Chromium crashes when it lays out a hundred fractions in each
#: other. It is lower beside commands whose arguments MathJax measures twice, at each level anew.
MAX_BRACES, _MAX_TWICE = 20, 5
_NESTING = re.compile(r"\\(?:left|right|begin|end)(?![A-Za-z])|\\.|[{}%\n]", re.DOTALL)
_TWICE = re.compile(r"\\x[A-Za-z]{3}")
#: Most places in tables of formulas: 10 000 take a page two seconds.
MAX_PLACES = 20_000

_COMMAND = re.compile(r"\\(?:([A-Za-z]+)|(.)|\Z)|\^(?=\^)", re.DOTALL)
_DELIMITER = re.compile(r"\$|\\[(\[]|\\begin\b")
_TOKEN = re.compile(r"\\(?:[A-Za-z]+|.)|[^\s}\\]", re.DOTALL)
#: How many signs the logo of TeX or LaTeX is drawn with, at most.
_LOGO = 20
_ROW = re.compile(r"\\\\|\\cr(?![A-Za-z])")
_BEGINNING = re.compile(r"[\\$]")
_ENVIRONMENT = re.compile(r"\s*\{([A-Za-z]{1,20}\*?)\}")
_COLOUR = re.compile(r"\s*\{[A-Za-z0-9#]{1,30}\}")
_SPACE = re.compile(r"\*?\s*\{\s*[0-9.]{1,4}\s*(?:em|ex|mu|pt|px|mm|cm|in)\s*\}")
#: Space between rows that is negative, which draws over other cells, or higher than a page.
_FAR = re.compile(r"\s*\[\s*(?:-|[0-9.]{4})")
_THICKNESS = re.compile(r"(?:\s*\{[^{}]{0,20}\}){2}\s*\{\s*(?:[0-9.]{1,3}\s*(?:em|ex|mu|pt|px|mm|cm|in)\s*)?\}")
_GAP = "\u200b"
#: What begins HTML or ends the words of a link in Markdown. A blank behind it changes no formula.
_MARKDOWN = re.compile(r"<(?=[A-Za-z/!?])|\](?=[(\[:])")
#: A tag of HTML that was cleaned. A value stands in double quotes; older versions of nh3 leave < and > in it.
TAG = re.compile(r"""(<[^>"]*(?:"[^"]*"[^>"]*)*>)""")


def check_latex(text: str) -> str:
    """Return the text of a ``text/latex`` output if its formulas only draw, or raise ``ContentRefused``."""
    if len(text) > MAX_LATEX:
        raise ContentRefused(f"it is longer than {MAX_LATEX >> 10} KB")
    if tokens(text) > MAX_TOKENS:
        raise ContentRefused(f"it has more than {MAX_TOKENS} signs and commands")
    for match in _COMMAND.finditer(text):
        if not _only_draws(match, text):
            raise ContentRefused(f"{match[0][:40] if match[1] else '^^'} is not typeset")
    if len(_DELIMITER.findall(text)) > MAX_DELIMITERS:
        raise ContentRefused(f"it holds more than {MAX_DELIMITERS // 2} formulas")
    if _is_deep(text):
        raise ContentRefused(f"its braces are nested deeper than {MAX_BRACES}, or {_MAX_TWICE} with arrows")
    if places(text) > MAX_PLACES:
        raise ContentRefused(f"its tables have more than {MAX_PLACES} places")
    return _MARKDOWN.sub(r"\g<0> ", text)


def tokens(text: str) -> int:
    """Return about how many signs and commands a page draws of a text with formulas; one that is too long has more."""
    return len(_TOKEN.findall(text, 0, MAX_LATEX)) + _LOGO * text.count("TeX") + max(0, len(text) - MAX_LATEX)


def places(text: str) -> int:
    """Return at most how many places tables of formulas have: MathJax fills each row up to the widest."""
    if "&" not in text:
        return 0
    rows = _ROW.split(text.replace("&amp;", "&"))
    return len(rows) * (1 + max(row.count("&") for row in rows))


def as_html(text: str, *, typeset: bool = True) -> str:
    r"""Return text as HTML. A formula that does more than draw is shown as its source.

    MathJax reads no formula across elements: a ``<span>`` around the ``\`` (around the ``$`` without ``typeset``)
    disables it.
    """
    if not typeset:
        return _BEGINNING.sub(lambda match: f"<span>{match[0]}</span>", escape(text, quote=False))
    if "\\" not in text and "^^" not in text:
        return escape(text, quote=False)
    pieces, end = [], 0
    for match in _COMMAND.finditer(text):
        if not _only_draws(match, text):
            pieces += [escape(text[end : match.start()], quote=False), f"<span>{match[0][0]}</span>"]
            end = match.start() + 1
    return "".join(pieces) + escape(text[end:], quote=False)


def may_be_typeset(markup: str) -> bool:
    """Whether an output has few enough formulas and braces; raises ``ContentRefused`` if it has far too many."""
    if markup.count("\\") + markup.count("$") + markup.count("^^") > MAX_SIGNS:
        raise ContentRefused(f"it holds more than {MAX_SIGNS} signs of formulas")
    few = len(_DELIMITER.findall(markup)) <= MAX_DELIMITERS and places(markup) <= MAX_PLACES
    return few and not _is_deep(markup)


def tokens_of_formulas(html: str) -> int:
    """Return ``tokens`` of the texts of clean HTML that a page searches for formulas."""
    if "$" not in html and "\\" not in html:
        return 0
    return sum(tokens(text) for text in TAG.split(html)[::2] if "$" in text or "\\" in text)


def defused(html: str) -> str:
    r"""Disable commands that do more than draw, in our own HTML that quotes a sandbox, by an invisible space."""

    def broken(match: re.Match[str]) -> str:
        return match[0] if _only_draws(match, html) else f"{match[0][0]}{_GAP}{match[0][1:]}"

    return _COMMAND.sub(broken, html)


def _only_draws(match: re.Match[str], text: str) -> bool:
    name, sign = match[1], match[2]
    if name is None:
        # A single sign (\, \{ \\) only draws. ^^ can write any character, and \\[-…] moves rows up: both are refused.
        return match[0] != "^" and not (sign == "\\" and _FAR.match(text, match.end()))
    if name in ("begin", "end"):
        found = _ENVIRONMENT.match(text, match.end())
        return found is not None and found[1] in ENVIRONMENTS
    if name in ("color", "textcolor"):
        return bool(_COLOUR.match(text, match.end()))
    if name in ("hspace", "mspace"):
        return bool(_SPACE.match(text, match.end()))
    return bool(_THICKNESS.match(text, match.end())) if name == "genfrac" else name in COMMANDS


def _is_deep(text: str) -> bool:
    r"""Whether too many braces, ``\left`` and environments are open at once. What ends none is ignored."""
    most = _MAX_TWICE if _TWICE.search(text) else MAX_BRACES
    if sum(map(text.count, ("{", r"\left"))) <= most:
        return False
    depth, comment = 0, False  # in a comment nothing ends
    for sign in _NESTING.findall(text):
        comment = (comment or (sign == "%" and depth > 0)) and sign != "\n"
        if sign in ("{", r"\left", r"\begin"):
            depth += 1
        elif sign in ("}", r"\right", r"\end") and not comment:
            depth = max(0, depth - 1)
        if depth > most:
            return True
    return False
