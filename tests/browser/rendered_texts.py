"""Texts through the renderers of a notebook page, many at a time, and what in the result could act."""

from collections.abc import Iterable, Mapping, Sequence

from playwright.sync_api import Page

from sandbox_kernel.untrusted.sanitize import sanitize_bundle

#: What may stand in a rendered output: what the cleaner lets through, what renderers put around it, and formulas.
_AUDIT = r"""
window.auditOf = (root) => {
    const known = new Set((
        'a abbr b bdi bdo blockquote br caption center cite code col colgroup dd del details dfn div dl dt em figcaption ' +
        'figure h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark ol p pre progress q s samp section small span strong sub ' +
        'summary sup table tbody td tfoot th thead tr tt u ul var svg g defs symbol use path rect circle ellipse line ' +
        'polyline polygon text tspan textpath clippath mask marker pattern lineargradient radialgradient stop image ' +
        'filter fegaussianblur feoffset feblend fecolormatrix feflood fecomposite femerge femergenode femorphology'
    ).split(' '));
    const mathml = /^(mjx-|math$|m[a-z]+$|semantics$|annotation)/;
    const found = [];
    for (const node of root.querySelectorAll('*')) {
        const name = node.localName.toLowerCase();
        const formula = node.closest('mjx-container') !== null;
        if (!known.has(name) && !(formula && mathml.test(name))) found.push(`element ${name}`);
        for (const {name: key, value} of node.attributes) {
            if (/^on/i.test(key)) found.push(`handler ${key}`);
            // A link that the page itself makes of text opens in a window without an opener, where no script of it runs.
            if (node.closest('.jp-RenderedText') && name === 'a') {
                if (node.target !== '_blank' || !node.relList.contains('noopener')) found.push(`link without noopener ${value}`);
                continue;
            }
            if (/^\s*(javascript|vbscript|data:text)/i.test(value.replace(/[\x00-\x20]/g, ''))) found.push(`scheme ${key}`);
            if (/href$/i.test(key) && name === 'a' && !/^(https?:|mailto:)/i.test(value)) found.push(`link ${value}`);
            if (key === 'src' && !value.startsWith('data:image/')) found.push(`src ${value}`);
            if (/command/i.test(key)) found.push(`command ${key}`);
            if (key === 'id' && !formula && !node.closest('svg')) found.push(`id ${value}`);
            if (key === 'style' && /position:\s*(fixed|absolute|sticky)|url\(/i.test(value) && !formula) found.push(`style ${value}`);
        }
        if (formula && name === 'a') found.push('link in a formula');
        if (formula && /fixed/.test(node.getAttribute('style') || '')) found.push('style in a formula');
        if (/(^| )jp-(Dialog|mod-)/.test(node.className.baseVal ?? node.className) && node !== root) found.push('class');
    }
    return found;
};
// Formulas are drawn after a renderer says that it is done; ours here is the last in the queue.
window.settled = async () => {
    const rendermime = window.jupyterapp.shell.currentWidget.content.rendermime;
    const last = rendermime.createRenderer('text/latex');
    last.constructor.attach(last, document.body);
    await last.renderModel(rendermime.createModel({data: {'text/latex': '$x$'}, metadata: {}, trusted: true}));
    for (let tries = 0; !last.node.querySelector("mjx-container"); tries++) {
        if (tries > 500) throw new Error("no formula is drawn any more");
        await new Promise((done) => setTimeout(done, 20));
    }
    last.dispose();
};
window.renderAll = async (bundles) => {
    const rendermime = window.jupyterapp.shell.currentWidget.content.rendermime;
    const place = document.body.appendChild(document.createElement('div'));
    const verdicts = [];
    for (const data of bundles) {
        const mime = rendermime.preferredMimeType(data, 'any');
        const renderer = rendermime.createRenderer(mime);
        renderer.constructor.attach(renderer, place);
        await renderer.renderModel(rendermime.createModel({data, metadata: {}, trusted: true}));
        verdicts.push(renderer);
    }
    await window.settled();
    const found = verdicts.map((renderer) => window.auditOf(renderer.node));
    for (const renderer of verdicts)
        for (const node of renderer.node.querySelectorAll('a, img, code, span'))
            for (const event of ['mouseover', 'focus', 'animationstart']) node.dispatchEvent(new Event(event, {bubbles: true}));
    verdicts.forEach((renderer) => renderer.dispose());
    place.remove();
    return found;
};
"""


def prepare(page: Page) -> None:
    """Load the audit into a page that shows a notebook."""
    page.evaluate(f"() => {{{_AUDIT}}}")


def audit(page: Page, bundles: Sequence[Mapping[str, object]]) -> list[list[str]]:
    """Render bundles as outputs of a trusted notebook; for each, what in it could act."""
    found: list[list[str]] = []
    for start in range(0, len(bundles), 50):
        found += page.evaluate(
            "(bundles) => window.renderAll(bundles)", [dict(each) for each in bundles[start : start + 50]]
        )
    return found


def cleaned(texts: Iterable[tuple[str, str]]) -> list[Mapping[str, object]]:
    """What a page gets of these texts."""
    return [sanitize_bundle({mime: text}, {}).data for mime, text in texts]
