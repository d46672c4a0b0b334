// The receipt below a cell.

// Turns the JSON of a receipt into the values that the page shows. Pure functions; they create no elements.
//
// A notebook may be hostile, so nothing in it is trusted: types are checked, invisible characters are replaced, texts
// and lists are cut. sandbox_kernel/receipt.py writes the JSON.
import { bytesText, control, element, megabytesText, secondsText } from './dom.js';

export const MIME = 'application/vnd.sandbox-kernel.run+json';

const MOST_TEXT = 400;
const MOST_ENTRIES = 20;
// Control characters, and characters that change the direction of text.
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

// Returns a string that is safe to show and to copy; '' for a value that is not a string.
export function safeText(value) {
  return safeTextOf(MOST_TEXT, value);
}

// The same with another length.
export function safeTextOf(most, value) {
  if (typeof value !== 'string') return '';
  const clean = value.slice(0, most + 1).replace(/\s+/g, ' ').replace(INVISIBLE, '\ufffd').trim();
  return clean.length > most || value.length > most ? `${clean.slice(0, most)}…` : clean;
}

function amount(value) {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 ? value : null;
}

function whole(value) {
  return Number.isSafeInteger(value) ? value : null;
}

function entries(value, read) {
  const list = Array.isArray(value) ? value : [];
  return { shown: list.slice(0, MOST_ENTRIES).map(read), hidden: Math.max(0, list.length - MOST_ENTRIES) };
}

function table(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value) ? value : {};
}

// Words for the kinds of isolation, as a user knows them; the kernel's own words are in the details.
const ISOLATION = { 'process+sandbox': 'isolated process', process: 'process without walls', wasm: 'WebAssembly' };

export function wordsForIsolation(value) {
  return Object.hasOwn(ISOLATION, value) ? ISOLATION[value] : value;
}

// Whether a receipt among the outputs of a cell says that files were changed, or has a note: changes of the kernel before
// are told in one. `outputs` is JupyterLab's model of them.
export function changedFiles(outputs) {
  const shown = Array.from({ length: outputs?.length ?? 0 }, (_none, index) => outputs.get(index));
  return shown.some(({ data, metadata }) => whole(table(metadata[MIME]).changed_files) > 0 || table(data[MIME]).notes?.length > 0);
}

// Returns {tone, slim, ending, language, isolation, meters, rows, changed, refused, notes}: all that a receipt shows, in
// order. `slim`: nothing of it is notable, so time and memory are enough.
export function readReceipt(data, metadata) {
  const facts = table(data);
  const measured = table(metadata);
  const refused = entries(facts.violations, (entry) => {
    const { rule, subject, reason, remedy } = table(entry);
    return { rule: safeText(rule), subject: safeText(subject), reason: safeText(reason), remedy: safeText(remedy) };
  });
  const notes = entries(facts.notes, safeText);
  const changed = whole(measured.changed_files) ?? 0;
  const shade = tone(facts, refused.shown.length);
  const unwalled = facts.isolation === 'process';
  return {
    tone: shade,
    slim: shade === 'good' && notes.shown.length === 0 && changed <= 0 && !unwalled && facts.status === 'ok',
    changed: changed > 0 ? `${changed} ${changed === 1 ? 'file' : 'files'} changed` : '',
    ending: safeText(facts.ending) || safeText(facts.status) || 'unknown end',
    language: safeText(facts.language),
    isolation: wordsForIsolation(safeText(facts.isolation)),
    meters: meters(facts, measured),
    rows: rows(facts, measured),
    refused,
    notes,
  };
}

// Returns the limits in a receipt, for the status bar; null for a limit that it does not have.
export function readLimits(data) {
  const facts = table(data);
  return { timeout: amount(facts.timeout_s), memory: amount(facts.memory_limit_mb), apart: ranApart(facts) };
}

// Whether a cell ran outside of its language's session; its limits are then not those of the session.
function ranApart(facts) {
  return Array.isArray(facts.note_kinds) && facts.note_kinds.includes('fresh_sandbox');
}

function tone(facts, refusals) {
  if (facts.status === 'ok') return facts.limit || refusals > 0 ? 'warn' : 'good';
  return facts.status === 'interrupted' ? 'warn' : 'bad';
}

function meters(facts, measured) {
  const time = meter('time', amount(measured.duration_s), amount(facts.timeout_s), secondsText);
  const megabyte = 1 << 20;
  const peak = amount(measured.peak_memory_bytes);
  const memory = meter('memory', peak === null ? null : peak / megabyte, amount(facts.memory_limit_mb), megabytesText);
  const added = amount(measured.added_memory_bytes);
  if (memory && added >= megabyte) memory.text += `, +${bytesText(added)} by this cell`;
  const onCard = amount(measured.peak_gpu_memory_bytes);
  const card = meter('GPU memory', onCard === null ? null : onCard / megabyte, amount(facts.gpu_memory_limit_mb), megabytesText);
  return [time, memory, card].filter((one) => one !== null);
}

function meter(label, used, limit, text) {
  if (used === null) return null;
  const fraction = limit ? Math.min(1, used / limit) : null;
  const level = fraction === null || fraction < 0.7 ? 'low' : fraction < 0.95 ? 'high' : 'full';
  return { label, fraction, level, used: text(used), text: limit ? `${text(used)} of ${text(limit)}` : text(used) };
}

function rows(facts, measured) {
  const show = (value, text) => (value === null ? '' : text(value));
  const cut = (flag, count) => (count ? `${bytesText(count)}${facts[flag] === true ? ', shown in part' : ''}` : '');
  return [
    ['status', safeText(facts.status)],
    ['exit code', String(whole(facts.exit_code) || '')],
    ['signal', show(whole(facts.signal), String)],
    ['limit reached', safeText(facts.limit)],
    ['session', facts.rolled_back === true ? 'as it was before this cell' : ''],
    ['runs in', wordsForIsolation(safeText(facts.isolation))],
    ['time limit', show(amount(facts.timeout_s), secondsText)],
    ['memory limit', show(amount(facts.memory_limit_mb), megabytesText)],
    ['time', show(amount(measured.duration_s), secondsText)],
    ['compile time', show(amount(measured.compile_duration_s), secondsText)],
    ['CPU time', show(amount(measured.cpu_s), secondsText)],
    ['peak memory', show(amount(measured.peak_memory_bytes), bytesText)],
    ['of it by this cell', show(amount(measured.added_memory_bytes), bytesText)],
    ['kept states, beside it', show(amount(measured.kept_memory_bytes), bytesText)],
    ['GPU memory limit', show(amount(facts.gpu_memory_limit_mb), megabytesText)],
    ['peak GPU memory', show(amount(measured.peak_gpu_memory_bytes), bytesText)],
    ['standard output', cut('stdout_truncated', whole(measured.stdout_bytes))],
    ['standard error', cut('stderr_truncated', whole(measured.stderr_bytes))],
    ['fuel used', show(whole(measured.fuel_used), String)],
  ].filter(([, text]) => text !== '');
}

// Draws the receipt of a run: one line with bars for time and memory, details to unfold, and refusals with a remedy.
//
// A run with nothing notable takes no place: its time and memory show when the pointer or the focus is in its cell.

const MARK = { good: '✓', warn: '!', bad: '✗' };
// Lets Enter and Space reach our controls: in command mode JupyterLab would use them as shortcuts.
export const OWN_KEYS = { 'data-lm-suppress-shortcuts': 'true' };

/** @param {import('lab-modules').Shared} shared */
export async function receiptPlugin(shared) {
  const [{ IRenderMimeRegistry }, { Widget }, { Clipboard }] = await shared('@jupyterlab/rendermime', '@lumino/widgets', '@jupyterlab/apputils');

  class Receipt extends Widget {
    constructor() {
      super();
      this.addClass('jp-SandboxReceipt');
    }

    // Called by JupyterLab for every new or changed output of our MIME type.
    async renderModel(model) {
      const receipt = readReceipt(model.data[MIME], model.metadata?.[MIME]);
      this.node.dataset.tone = receipt.tone;
      this.node.toggleAttribute('data-slim', receipt.slim);
      this.node.replaceChildren(...receiptNodes(receipt, (text) => Clipboard.copyToSystem(text)));
    }
  }

  return {
    id: 'sandbox-kernel:receipt',
    description: 'Shows the receipt of a sandboxed run.',
    autoStart: true,
    requires: [IRenderMimeRegistry],
    activate: (_app, registry) =>
      registry.addFactory({ safe: true, mimeTypes: [MIME], createRenderer: () => new Receipt() }, 0),
  };
}

function receiptNodes(receipt, copy) {
  const details = element('details', { children: [summary(receipt), detailList(receipt.rows)] });
  return [details, ...list('refused', receipt.refused, (entry) => refusal(entry, copy)), ...list('notes', receipt.notes, note)];
}

function summary({ tone, slim, ending, language, isolation, meters, changed }) {
  const known = [language, isolation].filter(Boolean);
  const facts = [...known, ...[changed].filter(Boolean)];
  const spoken = [`Sandbox run: ${ending}`, ...facts, ...meters.map(({ label, text }) => `${label} ${text}`)];
  const attributes = { 'aria-label': spoken.join(', '), ...OWN_KEYS };
  if (slim) {
    const amounts = meters.map(({ used }) => element('span', { className: 'jp-SandboxReceipt-amount', text: used }));
    return control('receipt', 'summary', { attributes: { ...attributes, title: spoken.join('\n') }, children: amounts });
  }
  return control('receipt', 'summary', {
    attributes,
    children: [
      element('span', { className: 'jp-SandboxReceipt-mark', text: MARK[tone], attributes: { 'aria-hidden': 'true' } }),
      element('span', { className: 'jp-SandboxReceipt-ending', text: ending }),
      ...known.map((text) => element('span', { className: 'jp-SandboxReceipt-fact jp-SandboxReceipt-usual', text })),
      ...(changed ? [element('span', { className: 'jp-SandboxReceipt-fact', text: changed })] : []),
      ...meters.map(bar),
    ],
  });
}

// The summary's label contains the numbers, so the bar is hidden from screen readers.
function bar({ label, fraction, level, used, text }) {
  const children = [element('span', { className: 'jp-SandboxReceipt-label', text: label })];
  if (fraction !== null) {
    const fill = element('span', { className: 'jp-SandboxReceipt-fill' });
    fill.style.width = `${(fraction * 100).toFixed(1)}%`;
    children.push(element('span', { className: 'jp-SandboxReceipt-bar', children: [fill] }));
  }
  children.push(element('span', { className: 'jp-SandboxReceipt-amount', children: [used, element('span', { text: text.slice(used.length) })] }));
  return element('span', {
    className: 'jp-SandboxReceipt-meter',
    attributes: { 'aria-hidden': 'true', 'data-meter': label, 'data-level': level },
    children,
  });
}

function detailList(rows) {
  const pairs = rows.flatMap(([name, text]) => [element('dt', { text: name }), element('dd', { text })]);
  return element('dl', { children: pairs });
}

function list(name, { shown, hidden }, draw) {
  if (shown.length === 0) return [];
  const items = shown.map((entry) => element('li', { children: draw(entry) }));
  if (hidden > 0) items.push(element('li', { text: `… and ${hidden} more` }));
  return [element('ul', { className: `jp-SandboxReceipt-${name}`, attributes: { 'aria-label': name }, children: items })];
}

function note(text) {
  return [element('span', { text })];
}

function refusal({ rule, subject, reason, remedy }, copy) {
  const what = [rule, subject].filter(Boolean).join(' ');
  const children = [element('strong', { text: 'refused' }), element('code', { text: what }), element('span', { text: reason })];
  if (remedy) children.push(element('code', { className: 'jp-SandboxReceipt-remedy', text: remedy }), copyButton(remedy, copy));
  return children;
}

function copyButton(text, copy) {
  const button = control('copy', 'button', {
    className: 'jp-SandboxReceipt-copy',
    attributes: { type: 'button', 'aria-label': `Copy ${text}`, 'aria-live': 'polite', ...OWN_KEYS },
  });
  button.addEventListener('click', () => {
    copy(text);
    button.textContent = 'Copied';
    button.setAttribute('aria-label', `Copied ${text}`);
  });
  return button;
}
