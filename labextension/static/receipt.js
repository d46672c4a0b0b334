// Draws the receipt of a run: one line with bars for time and memory, details to unfold, and refusals with a remedy.
//
// A run with nothing notable takes no place: its time and memory show when the pointer or the focus is in its cell.
import { control } from './controls.js';
import { element } from './dom.js';
import { MIME, readReceipt } from './receipt-facts.js';

const MARK = { good: '✓', warn: '!', bad: '✗' };
// Lets Enter and Space reach our controls: in command mode JupyterLab would use them as shortcuts.
export const OWN_KEYS = { 'data-lm-suppress-shortcuts': 'true' };

export async function receiptPlugin(shared) {
  const [{ IRenderMimeRegistry }, { Widget }, { Clipboard }] = await Promise.all(
    ['@jupyterlab/rendermime', '@lumino/widgets', '@jupyterlab/apputils'].map(shared),
  );

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
