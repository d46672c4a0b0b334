"""The TeX names that a formula may use: commands of MathJax 3 that only draw, in JupyterLab 4 and nbconvert's pages.

Taken from the tables of MathJax's packages base, ams, boldsymbol, braket, cancel, extpfeil, mathtools and textcomp,
without commands that link, style, name, count, load, define, or move things out of their place. A formula with any
other name is shown as its source.
"""

from __future__ import annotations

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
    "newline hline hdashline bmod pmod mod pod iff pmb TeX LaTeX not dots space nonumber mathring nobreakspace "
    "negmedspace negthickspace idotsint dddot ddddot sideset boxed tag notag substack injlim projlim varliminf "
    "varlimsup varinjlim varprojlim operatorname genfrac frac tfrac dfrac binom tbinom dbinom cfrac shoveleft "
    "shoveright xrightarrow xleftarrow implies impliedby smash strut mathstrut hfill "
)
_EXTRAS = (
    "bra ket braket set Bra Ket Braket Set ketbra Ketbra boldsymbol cancel bcancel xcancel cancelto xleftrightarrow "
    "xLeftarrow xRightarrow xLeftrightarrow xhookleftarrow xhookrightarrow xmapsto xrightharpoondown xleftharpoondown "
    "xrightleftharpoons xrightharpoonup xleftharpoonup xleftrightharpoons overbracket underbracket centercolon "
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
_TEXT_SYMBOLS = (
    "textasciicircum textasciitilde textasteriskcentered textbackslash textbar textbraceleft textbraceright "
    "textbullet textdagger textdaggerdbl textellipsis textemdash textendash textexclamdown textgreater textless "
    "textordfeminine textordmasculine textparagraph textperiodcentered textquestiondown textquotedblleft "
    "textquotedblright textquoteleft textquoteright textsection textunderscore textvisiblespace textacutedbl "
    "textasciiacute textasciibreve textasciicaron textasciidieresis textasciimacron textgravedbl texttildelow "
    "textbaht textcent textcolonmonetary textcurrency textdollar textdong texteuro textflorin textguarani textlira "
    "textnaira textpeso textsterling textwon textyen textcircledP textcompwordmark textcopyleft textcopyright "
    "textregistered textservicemark texttrademark textbardbl textbigcircle textblank textbrokenbar textdiscount "
    "textestimated textinterrobang textinterrobangdown textmusicalnote textnumero textopenbullet textpertenthousand "
    "textperthousand textrecipe textreferencemark textlangle textrangle textlbrackdbl textrbrackdbl textlquill "
    "textrquill textcelsius textdegree textdiv textdownarrow textfractionsolidus textleftarrow textlnot textmho "
    "textminus textmu textohm textonehalf textonequarter textonesuperior textpm textrightarrow textsurd "
    "textthreequarters textthreesuperior texttimes texttwosuperior textuparrow textborn textdied textdivorced "
    "textmarried textcentoldstyle textdollaroldstyle textzerooldstyle textoneoldstyle texttwooldstyle "
    "textthreeoldstyle textfouroldstyle textfiveoldstyle textsixoldstyle textsevenoldstyle texteightoldstyle "
    "textnineoldstyle "
)
_ENVIRONMENTS = (
    "Bmatrix Bmatrix* Bsmallmatrix Bsmallmatrix* Vmatrix Vmatrix* Vsmallmatrix Vsmallmatrix* align align* alignat "
    "alignat* aligned alignedat array bmatrix bmatrix* bsmallmatrix bsmallmatrix* cases cases* dcases dcases* drcases "
    "drcases* eqnarray eqnarray* equation equation* flalign flalign* gather gather* gathered lgathered matrix matrix* "
    "multline multline* multlined pmatrix pmatrix* psmallmatrix psmallmatrix* rcases rcases* rgathered smallmatrix "
    "smallmatrix* split subarray vmatrix vmatrix* vsmallmatrix vsmallmatrix* xalignat xalignat* xxalignat "
)

COMMANDS = frozenset(f"{_STRUCTURE}{_EXTRAS}{_SYMBOLS}{_TEXT_SYMBOLS}".split())
ENVIRONMENTS = frozenset(_ENVIRONMENTS.split())
