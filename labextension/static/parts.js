// Parts that several tabs and dialogs of the side panel are made of.
import { element } from './dom.js';

export function button(text, work, { label = text, className = '' } = {}) {
  const made = element('button', { className, text, attributes: { type: 'button', 'aria-label': label } });
  made.addEventListener('click', work);
  return made;
}

// The lines of a diff, as panel-facts.js returns them.
export function diffBlock(lines) {
  const children = lines.map(({ kind, text }) => element('span', { text: `${text}\n`, attributes: { 'data-line': kind } }));
  return element('pre', { className: 'jp-SandboxPanel-diff', attributes: { tabindex: '0', 'aria-label': 'diff' }, children });
}

export function paragraph(text, className = 'jp-SandboxPanel-note') {
  return element('p', { className, text });
}

export function bar(...children) {
  return element('div', { className: 'jp-SandboxPanel-bar', children });
}
