// The tab "Files and changes": what cells changed in the notebook's folder, with diff, apply and discard.
import { element } from './dom.js';
import { diffLines, pictureUrl, readChanges } from './panel-facts.js';
import { bar, button, diffBlock, paragraph } from './parts.js';

const SIGN = { created: '+', modified: '~', deleted: '−', renamed: '→' };

export function changesTab(body, { link, confirm, run, say, editLimits }) {
  const opened = new Set();
  let conflicts = new Set();
  let panel = null;

  const discard = (paths, what) =>
    run(async () => {
      const sure = await confirm(`Drop ${what}?`, 'Cells will see your own version again. This cannot be undone.', 'Drop');
      return sure ? (await link.change(panel, 'discard', { paths })).text : '';
    });
  const apply = (paths) =>
    run(async () => {
      conflicts = new Set();
      try {
        return (await link.change(panel, 'apply', { paths })).text;
      } catch (error) {
        conflicts = new Set(error.conflicts);
        throw error;
      }
    });

  async function refresh(current) {
    if (current !== panel) {
      opened.clear();
      conflicts = new Set();
    }
    panel = current;
    draw(readChanges(await link.ask(panel, 'changes')));
  }

  function draw({ here, changes, more }) {
    if (!here) {
      const why = 'Cells work in a folder of their own. Let them work on a copy of this notebook’s folder, and this tab shows what they change.';
      body.replaceChildren(paragraph(why), bar(button('Work on the notebook’s folder…', () => editLimits({ here: true }))));
      return;
    }
    const folder = here.split('/').slice(-2).join('/');
    const head = paragraph(`${folder}: ${changes.length + more} ${changes.length + more === 1 ? 'change' : 'changes'}. Your files are as they were until you apply.`);
    head.title = here;
    if (changes.length === 0) {
      body.replaceChildren(paragraph(`${folder}: nothing differs. What cells change shows up here first.`));
      return;
    }
    const known = new Set(changes.map(({ path }) => path));
    for (const path of opened) if (!known.has(path)) opened.delete(path);
    const all = bar(button('Apply all', () => apply([])), button('Discard all', () => discard([], 'all changes')));
    const items = element('ul', { className: 'jp-SandboxPanel-changes', attributes: { 'aria-label': 'changes' }, children: conflictsFirst(changes).map(row) });
    const rest = more > 0 ? [paragraph(`… and ${more} more`)] : [];
    keepFocus(() => body.replaceChildren(head, all, items, ...rest));
  }

  // What stopped an application stands where one looks first.
  const conflictsFirst = (changes) => [...changes].sort((a, b) => conflicts.has(b.path) - conflicts.has(a.path));

  function row(change) {
    const { path, shown, kind, size, named } = change;
    const conflict = conflicts.has(path);
    const words = [kind, size, ...(named ? ['applied only one by one'] : []), ...(conflict ? ['conflict: you changed it too'] : [])];
    const summary = element('summary', {
      attributes: { 'aria-label': `${shown}, ${words.filter(Boolean).join(', ')}` },
      children: [
        element('span', { className: 'jp-SandboxPanel-sign', text: SIGN[kind] ?? '?', attributes: { 'data-kind': kind } }),
        element('span', { className: 'jp-SandboxPanel-path', text: shown }),
        element('span', { className: 'jp-SandboxPanel-size', text: words.slice(1).filter(Boolean).join(' · ') }),
      ],
    });
    const place = element('div', { className: 'jp-SandboxPanel-change' });
    const details = element('details', { children: [summary, place] });
    details.addEventListener('toggle', () => {
      if (!details.open) opened.delete(path);
      else if (place.childElementCount === 0) show(change, place);
    });
    if (opened.has(path)) details.open = true;
    const actions = bar(
      button('Apply', () => apply([path]), { label: `Apply ${shown}` }),
      button('Discard', () => discard([path], shown), { label: `Discard ${shown}` }),
    );
    return element('li', { attributes: { 'data-path': shown, ...(conflict ? { 'data-conflict': 'true' } : {}) }, children: [details, actions] });
  }

  async function show({ path, shown, kind }, place) {
    opened.add(path);
    try {
      const data = await link.ask(panel, 'change', { path });
      const [before, after] = [pictureUrl(data.before), pictureUrl(data.after)];
      if (before || after) place.replaceChildren(picture(before, 'before', shown), picture(after, 'after', shown));
      else place.replaceChildren(diffBlock(diffLines(data.patch)));
    } catch (error) {
      place.replaceChildren(paragraph(kind === 'deleted' ? 'deleted' : error.message));
      say(error.message, 'bad');
    }
  }

  function picture(url, when, shown) {
    const image = url ? element('img', { attributes: { src: url, alt: `${shown} ${when}` } }) : element('span', { text: 'none' });
    return element('figure', { children: [element('figcaption', { text: when }), image] });
  }

  // Redrawing removes the focused element; the one with the same name gets the focus.
  function keepFocus(redraw) {
    const focused = body.contains(document.activeElement) ? document.activeElement.getAttribute('aria-label') : null;
    redraw();
    if (focused) [...body.querySelectorAll('[aria-label]')].find((node) => node.getAttribute('aria-label') === focused)?.focus();
  }

  return { refresh };
}
