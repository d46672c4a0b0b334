// Limits: which are in force, the item in the status bar, and the dialog that changes them.

// Finds the limits that the active cell would run under, from the notebook's text and receipts. Pure functions.
//
// The cell's own options come first, then what the kernel said. Otherwise the latest of: a `%sandbox --timeout …` line that was run, and the
// receipt of a cell without that option. If there is neither, the text says that defaults apply, without numbers.
import { CONTROLS, DIALOG_BUTTONS, control, element, megabytesText, parseMegabytes, parseSeconds, secondsText } from './dom.js';
import { kernelLink } from './kernel-link.js';
import { DEFAULT_LANGUAGE, MOST_MAGIC, cellMagic, lineMagics, magicLength, parseLanguage } from './languages.js';
import { readOverview } from './panel-facts.js';
import { quoted } from './permission-prompts.js';
import { MIME, readLimits, safeText } from './receipt.js';

const LIMITS = [
  { key: 'timeout', option: '--timeout', label: 'time', parse: parseSeconds, text: secondsText },
  { key: 'memory', option: '--memory', label: 'memory', parse: parseMegabytes, text: megabytesText },
];

// `active`: the cell's text. `cells`: [{source, executionCount, receipts}] of the notebook. `everyCell`: whether the
// kernel also sandboxes cells without the magic. `told`: {timeout, memory} as the kernel said, in seconds and megabytes.
// Returns null if the cell does not run in a sandbox.
export function limitsInForce(active, cells, everyCell, told = {}) {
  const magic = cellMagic(active);
  if (!magic && !everyCell) return null;
  const own = magic ?? { language: null, options: new Map() };
  let room = 2 * MOST_MAGIC; // of all cells, the newest first: this runs at each key
  const ran = cells.filter((cell) => cell.executionCount !== null).sort((a, b) => b.executionCount - a.executionCount);
  const said = ran.filter(({ source }) => (room -= magicLength(source)) >= 0);
  return {
    language: languageInForce(own.language, said),
    // A cell in another language may have another default of memory.
    limits: LIMITS.map((limit) => ({ label: limit.label, ...limitInForce(limit, own.options, said, own.language === null ? told : {}) })),
    grants: [
      ...[...own.options].filter(([option]) => !LIMITS.some((limit) => limit.option === option))
        .flatMap(([option, values]) => values.map((value) => [option, ...(value ? [quoted(value)] : [])].join(' '))),
      ...(own.language === null ? (told.grants ?? []) : []),
    ],
  };
}

function languageInForce(own, said) {
  if (own !== null) return parseLanguage(own) ?? `unknown language ${own}`;
  for (const cell of said) {
    const { lines, reset } = defaultLines(cell);
    const named = lines.map(({ language }) => language && parseLanguage(language)).findLast(Boolean);
    if (named) return named;
    if (reset) break;
  }
  return DEFAULT_LANGUAGE;
}

function limitInForce(limit, options, said, told) {
  const own = options.get(limit.option)?.at(-1);
  if (own !== undefined) return readOption(limit, own, 'set by this cell');
  if (typeof told[limit.key] === 'number') return { text: limit.text(told[limit.key]), origin: 'in force in this notebook' };
  for (const cell of said) {
    const ran = cell.receipts.map((data) => readLimits(data)).filter((run) => !run.apart);
    const known = ran.map((run) => run[limit.key]).findLast((value) => value !== null);
    if (known !== undefined && !cellMagic(cell.source)?.options.has(limit.option)) {
      return { text: limit.text(known), origin: 'as in the last run' };
    }
    const { lines, reset } = defaultLines(cell);
    const set = lines.findLast(({ options: named }) => named.has(limit.option));
    if (set) return readOption(limit, set.options.get(limit.option).at(-1), 'set by %sandbox');
    if (reset) break;
  }
  return { text: null, origin: 'the default' };
}

// Returns the %sandbox lines of a cell from the last `%sandbox reset` on, and whether there is such a reset.
function defaultLines(cell) {
  const lines = lineMagics(cell.source);
  const last = lines.findLastIndex(({ language }) => language === 'reset');
  return { lines: lines.slice(Math.max(last, 0)), reset: last >= 0 };
}

function readOption(limit, value, origin) {
  const parsed = limit.parse(value);
  return { text: parsed === null ? `${value || 'nothing'}?` : limit.text(parsed), origin };
}

// Returns a short text for the status bar and a long one for the tooltip and screen readers.
export function limitsText({ language: named, limits, grants: given }, changeable = false) {
  const [language, grants] = [safeText(named), given.map(safeText)];
  const known = limits.filter(({ text }) => text !== null).map(({ text }) => safeText(text));
  const brief = ['Sandbox', language, ...(known.length > 0 ? known : ['default limits']), ...grants].join(' · ');
  const lines = limits.map(({ label, text, origin }) => `${label}: ${text === null ? origin : `${safeText(text)}, ${origin}`}`);
  const allowed = grants.length > 0 ? `with: ${grants.join(', ')}` : 'allowed: nothing beyond the notebook’s policy';
  return { brief, full: [`This cell runs in a sandbox (${language})`, ...lines, allowed, ...(changeable ? ['press to change'] : [])].join('\n') };
}

// The dialog behind the status bar's limits: time, memory, domains, folders, the notebook's own folder.

const FIELDS = [
  { key: 'timeout', hint: 'like 500ms, 30s or 2m' },
  { key: 'memory', hint: 'like 512M or 2G' },
  { key: 'domains', hint: 'one in a line, like example.org or example.org:8443; empty: none', many: true },
  { key: 'mounts', hint: 'one in a line, HOST:GUEST, like data:/data; read-only without :rw at its end', many: true },
];

// Returns the body of the dialog as an element, and `value()`: the limits as they stand in it.
export function limitsForm(limits, problem) {
  const inputs = {};
  const rows = FIELDS.map(({ key, hint, many }) => {
    const input = control(key, many ? 'textarea' : 'input', { text: '', attributes: { spellcheck: 'false', ...(many ? { rows: '2' } : { type: 'text' }) } });
    input.value = many ? limits[key].join('\n') : limits[key];
    inputs[key] = input;
    return element('label', { children: [element('span', { text: CONTROLS[key] }), input, element('small', { text: hint })] });
  });
  const here = control('here', 'input', { text: '', attributes: { type: 'checkbox' } });
  here.checked = limits.here !== '';
  const row = element('label', { className: 'jp-SandboxDialog-check', children: [here, element('span', { text: CONTROLS.here })] });
  const every = control('every', 'input', { text: '', attributes: { type: 'checkbox' } });
  const everyRow = element('label', { className: 'jp-SandboxDialog-check', children: [every, element('span', { text: CONTROLS.every })] });
  const trouble = element('p', { className: 'jp-SandboxDialog-problem', text: problem, attributes: { role: 'alert' } });
  const node = element('div', { className: 'jp-SandboxDialog', children: [trouble, ...rows, row, everyRow] });
  trouble.hidden = !problem;
  const lines = (text) => text.split('\n').map((line) => line.trim()).filter(Boolean);
  const value = () => ({
    timeout: inputs.timeout.value.trim(),
    memory: inputs.memory.value.trim(),
    domains: lines(inputs.domains.value),
    mounts: lines(inputs.mounts.value),
    here: here.checked ? limits.here || '.' : '',
    every: every.checked,
  });
  return { node, value };
}

const RESTART = DIALOG_BUTTONS['restart-with'];
const RESTART_MEANS =
  'A new session begins under these limits and has the variables of the one before. What cannot be brought along is named. Undo does not reach back behind it.';

// Asks, and begins a new session under the present limits that has the variables of the one before.
export async function restartKeeping({ confirm, link, panel }) {
  if (!(await confirm('Restart, keeping variables?', RESTART_MEANS, DIALOG_BUTTONS.restart))) return '';
  return (await link.change(panel, 'restart')).text;
}

// What the user did not touch stays as it is: a default may differ from language to language.
function changedFields(before, value) {
  return Object.fromEntries(Object.entries(value).filter(([key, now]) => JSON.stringify(now) !== JSON.stringify(before[key])));
}

// Shows the dialog until it is cancelled or the kernel has taken the limits; returns what the kernel said, or ''.
// What cannot be changed is said in the dialog, which keeps what was typed. `here`: the notebook's folder is ticked.
export async function editLimits({ Dialog, showDialog, Widget, link, panel, here = false }) {
  const before = { ...readOverview(await link.ask(panel, 'overview')).limits, every: false };
  let limits = here ? { ...before, here: before.here || '.' } : before;
  for (let problem = ''; ; ) {
    const form = limitsForm(limits, problem);
    const body = new Widget({ node: form.node });
    body.getValue = form.value;
    const { button, value } = await showDialog({
      title: 'Limits and access of this notebook',
      body,
      focusNodeSelector: 'input',
      buttons: [Dialog.cancelButton(), Dialog.okButton({ label: RESTART, className: 'jp-SandboxDialog-second', caption: RESTART_MEANS }), Dialog.okButton({ label: DIALOG_BUTTONS.change })],
    });
    if (!button.accept) return '';
    const changed = changedFields(before, value);
    if (button.label !== RESTART && Object.keys(changed).length === 0) return 'Nothing was changed.';
    try {
      const { text } = await link.change(panel, button.label === RESTART ? 'restart' : 'limits', changed);
      const { line } = readOverview(await link.ask(panel, 'overview'));
      return [text, `In force until the kernel ends: ${line}`].filter(Boolean).join('\n');
    } catch (error) {
      problem = error.message;
      limits = value;
    }
  }
}

// The status-bar item that shows the limits of the active cell. limits.js makes its text. In a notebook of the Sandbox
// kernel it is a button, which opens the dialog to change them.

/** @param {import('lab-modules').Shared} shared */
export async function limitsPlugin(shared) {
  const [{ INotebookTracker }, { IStatusBar }, { Widget }, { Signal }] = await shared('@jupyterlab/notebook', '@jupyterlab/statusbar', '@lumino/widgets', '@lumino/signaling');
  const link = await kernelLink(shared);
  return {
    id: 'sandbox-kernel:limits',
    description: 'Shows the limits of the active sandbox cell in the status bar.',
    autoStart: true,
    requires: [INotebookTracker],
    optional: [IStatusBar],
    activate: (app, tracker, statusBar) => {
      if (!statusBar) return;
      const item = new Widget({ node: control('limits', 'span') });
      item.addClass('jp-SandboxLimits');
      const changed = new Signal(item);
      const known = new WeakMap();
      const refresh = () => {
        show(item.node, currentLimits(tracker, link, known), link.current !== null);
        changed.emit();
      };
      const change = () => link.current && app.commands.execute('sandbox-kernel:limits');
      item.node.addEventListener('click', change);
      item.node.addEventListener('keydown', (event) => {
        if (event.key !== 'Enter' && event.key !== ' ') return;
        event.preventDefault();
        change();
      });
      link.follow(tracker);
      followKernel(link, known, refresh);
      statusBar.registerStatusItem('sandbox-kernel:limits', {
        item,
        align: 'middle',
        rank: 10,
        isActive: () => item.node.textContent !== '',
        activeStateChanged: changed,
      });
      followActiveCell(tracker, refresh);
    },
  };
}

// Calls `refresh` when the active cell, its text or its outputs change.
function followActiveCell(tracker, refresh) {
  let followed = null;
  const follow = () => {
    const model = tracker.activeCell?.model ?? null;
    if (model !== followed) {
      followed?.contentChanged.disconnect(refresh);
      model?.contentChanged.connect(refresh);
      followed = model;
    }
    refresh();
  };
  tracker.activeCellChanged.connect(follow);
  tracker.currentChanged.connect(follow);
  follow();
}

// Asks the kernel for the limits in force after cells and changes, one request at a time.
function followKernel(link, known, refresh) {
  const asking = new WeakSet();
  link.changed.connect(async (_link, { panel, why }) => {
    if (why === 'kernel') known.delete(panel);
    refresh();
    if (!['kernel', 'cell', 'limits', 'restart'].includes(why) || asking.has(panel) || !link.isSandbox(panel)) return;
    asking.add(panel);
    try {
      const { limits } = readOverview(await link.ask(panel, 'overview'));
      const grants = [...(limits.here ? ['on the folder'] : []), ...limits.domains];
      known.set(panel, { timeout: parseSeconds(limits.timeout), memory: parseMegabytes(limits.memory), grants });
      refresh();
    } catch {
      // The kernel went away; the text of the cells is what is left to go by.
    } finally {
      asking.delete(panel);
    }
  });
}

function currentLimits(tracker, link, known) {
  const panel = tracker.currentWidget;
  const active = tracker.activeCell?.model;
  if (!panel?.model || active?.type !== 'code') return null;
  const cells = [...panel.model.cells].filter((cell) => cell.type === 'code').map(readCell);
  return limitsInForce(active.sharedModel.getSource(), cells, link.isSandbox(panel), known.get(panel));
}

function readCell(cell) {
  const receipts = [];
  for (let index = 0; index < cell.outputs.length; index++) {
    const data = cell.outputs.get(index).data;
    if (MIME in data) receipts.push(data[MIME]);
  }
  return { source: cell.sharedModel.getSource(), executionCount: cell.executionCount, receipts };
}

function show(node, limits, changeable) {
  const { brief, full } = limits ? limitsText(limits, changeable) : { brief: '', full: '' };
  node.textContent = brief;
  node.title = full;
  node.setAttribute('role', changeable ? 'button' : 'note');
  node.setAttribute('aria-label', full);
  node.classList.toggle('jp-mod-clickable', changeable);
  if (changeable) node.tabIndex = 0;
  else node.removeAttribute('tabindex');
}
