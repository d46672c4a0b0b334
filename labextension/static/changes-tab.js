// The tab "Files and changes": what cells changed in the notebook's folder, with diff, apply and discard.
import { DIALOG_BUTTONS, bar, button, control, diffBlock, element, paragraph, redraw } from './dom.js';
import { diffLines, listed, pictureUrl, readChanges } from './panel-facts.js';

const STALE = 'The list has changed since it was drawn. Look at it as it is now, and press again.';
const NAMED = 'Tools on your machine may run or obey it unasked, or it may hold secrets: Apply all leaves it out.';
const HELD = 'Not written by “Apply all”: tools on your machine may run or obey these unasked, or they may hold secrets. Look at each, and apply it by itself.';
const SIGN = { created: '+', modified: '~', deleted: '−', renamed: '→' };

export function changesTab(body, { link, confirm, run, say, editLimits }) {
  const opened = new Set();
  let conflicts = new Set();
  let panel = null;
  let drawn = '';
  let marked = ''; // the conflicts in it
  // What tells this state of the changes from every other. The kernel applies no other one than this.
  let digest = '';

  const discard = (paths, what) =>
    run(async () => {
      if (paths.length === 0 && (await isStale())) return STALE;
      const sure = await confirm(`Drop ${what}?`, 'Cells will see your own version again. This cannot be undone.', DIALOG_BUTTONS.drop);
      return sure ? (await link.change(panel, 'discard', { paths })).text : '';
    });
  const apply = (paths) =>
    run(async () => {
      conflicts = new Set();
      try {
        return (await link.change(panel, 'apply', { paths, shown: digest })).text;
      } catch (error) {
        conflicts = new Set(error.conflicts);
        throw error;
      }
    });

  async function refresh(current) {
    if (current !== panel) {
      opened.clear();
      conflicts = new Set();
      drawn = '';
    }
    panel = current;
    show(await link.ask(panel, 'changes'));
  }

  // What is the same is left as it stands: buttons that were just made wait before they can be pressed.
  function show(data) {
    const marks = JSON.stringify([...conflicts]);
    if (listed(data) === drawn && marks === marked) return;
    [drawn, marked] = [listed(data), marks];
    digest = typeof data.digest === 'string' ? data.digest : '';
    draw(readChanges(data));
  }

  // Whether the list is not what it was when it was drawn: another page may have run a cell. Nobody has seen the rest.
  async function isStale() {
    const data = await link.ask(panel, 'changes');
    if (listed(data) === drawn) return false;
    show(data);
    return true;
  }

  function draw({ here, changes, more }) {
    if (!here) {
      const why = 'Cells work in a folder of their own. Let them work on a copy of this notebook’s folder, and this tab shows what they change.';
      redraw(body, paragraph(why), bar(button('work-here', () => editLimits({ here: true }))));
      return;
    }
    const folder = here.split('/').slice(-2).join('/');
    const count = `${changes.length + more} ${changes.length + more === 1 ? 'change' : 'changes'}`;
    const head = paragraph(`${folder}: ${count}. Your files are as they were until you apply.`);
    head.title = here;
    if (changes.length === 0) {
      redraw(body, paragraph(`${folder}: nothing differs. What cells change shows up here first.`));
      return;
    }
    const known = new Set(changes.map(({ path }) => path));
    for (const path of opened) if (!known.has(path)) opened.delete(path);
    const all = bar(button('apply-all', () => apply([])), button('discard-all', () => discard([], `all ${count}`)));
    const [held, plain] = [true, false].map((named) => conflictsFirst(changes.filter((change) => change.named === named)));
    const items = plain.length > 0 ? [rows(plain, 'changes')] : [];
    const apart = held.length > 0 ? [paragraph(HELD), rows(held, 'changes that are not written by Apply all')] : [];
    const rest = more > 0 ? [paragraph(`… and ${more} more`)] : [];
    redraw(body, head, all, ...items, ...rest, ...apart);
  }

  const rows = (changes, label) =>
    element('ul', { className: 'jp-SandboxPanel-changes', attributes: { 'aria-label': label }, children: changes.map(row) });

  // What stopped an application stands where one looks first.
  const conflictsFirst = (changes) => [...changes].sort((a, b) => Number(conflicts.has(b.path)) - Number(conflicts.has(a.path)));

  function row(change) {
    const { path, shown, kind, size, named } = change;
    const conflict = conflicts.has(path);
    const words = [kind, size, ...(named ? ['written only by its own Apply'] : []), ...(conflict ? ['conflict: you changed it too'] : [])];
    const summary = control('change', 'summary', {
      attributes: { ...(named ? { title: NAMED } : {}), 'aria-label': `${shown}, ${words.filter(Boolean).join(', ')}` },
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
      else if (place.childElementCount === 0) look(change, place);
    });
    if (opened.has(path)) details.open = true;
    const actions = bar(
      button('apply', () => apply([path]), { label: `Apply ${shown}` }),
      button('discard', () => discard([path], shown), { label: `Discard ${shown}` }),
    );
    return element('li', { attributes: { 'data-path': shown, ...(conflict ? { 'data-conflict': 'true' } : {}) }, children: [details, actions] });
  }

  async function look({ path, shown, kind }, place) {
    opened.add(path);
    try {
      const data = await link.ask(panel, 'change', { path });
      if ((data.digest ?? '') !== digest) return void (await refresh(panel)); // the list is older than this diff
      const [before, after] = [pictureUrl(data.before), pictureUrl(data.after)];
      if (before || after) place.replaceChildren(picture(before, 'before', shown), picture(after, 'after', shown));
      else place.replaceChildren(data.patch ? diffBlock(diffLines(data.patch)) : paragraph(`a folder, ${kind}`));
    } catch (error) {
      place.replaceChildren(paragraph(kind === 'deleted' ? 'deleted' : error.message));
      say(error.message, 'bad');
    }
  }

  function picture(url, when, shown) {
    const image = url ? element('img', { attributes: { src: url, alt: `${shown} ${when}` } }) : element('span', { text: 'none' });
    return element('figure', { children: [element('figcaption', { text: when }), image] });
  }

  return { refresh };
}
