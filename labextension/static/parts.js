// Parts that several tabs and dialogs of the side panel are made of.
import { control } from './controls.js';
import { element } from './dom.js';

export function button(name, work, { label } = {}) {
  const made = control(name, 'button', { attributes: { type: 'button', ...(label ? { 'aria-label': label } : {}) } });
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

const FOLDED = 160;

// A text that unfolds when it is long.
export function folded(text) {
  if (text.length <= FOLDED) return element('span', { text });
  const summary = control('long-text', 'summary', { text: `${text.slice(0, FOLDED)}…` });
  return element('details', { className: 'jp-SandboxPanel-folded', children: [summary, element('span', { text })] });
}

// Puts other children into a tab. The focused control is among those that go: the same one of the new gets the focus; if
// it is gone (a change that was applied), the one that has its place.
export function redraw(body, ...children) {
  const controls = () => [...body.querySelectorAll('[data-control]')].filter((one) => one.tabIndex >= 0);
  const focused = body.contains(document.activeElement) ? document.activeElement.closest('[data-control]') : null;
  const [name, label, at] = focused ? [focused.dataset.control, focused.getAttribute('aria-label'), controls().indexOf(focused)] : [];
  const nth = focused ? controls().filter((one) => one.dataset.control === name).indexOf(focused) : -1;
  body.replaceChildren(...children);
  if (!focused) return;
  const now = controls();
  const same = now.filter((one) => one.dataset.control === name);
  const next = same.find((one) => one.getAttribute('aria-label') === label) ?? same[Math.min(nth, same.length - 1)] ?? now[Math.min(at, now.length - 1)];
  next?.focus();
}
