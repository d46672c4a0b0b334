// Elements, buttons that wait until they stand still, and units: what every part of this extension draws with.

// How long the browser has to begin saving a file.
const REVOKE_MILLISECONDS = 60000;

// Creates an element. All elements of this extension are made here; text is always textContent, never markup.
export function element(tag, { className = '', text = '', attributes = {}, children = [] } = {}) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Saves bytes under a name, as the browser saves files; never as a kind that it would show.
export function saveFile(name, bytes) {
  const href = URL.createObjectURL(new Blob([bytes], { type: 'application/octet-stream' }));
  element('a', { attributes: { href, download: name } }).click();
  setTimeout(() => URL.revokeObjectURL(href), REVOKE_MILLISECONDS);
}

// Parses durations and sizes of options, and formats them for display.
const SECONDS = { ms: 0.001, s: 1, m: 60, h: 3600 };
const MEGABYTES = { k: 1 / 1024, m: 1, g: 1024, t: 1024 * 1024 };

// '500ms' -> 0.5; null for anything that the kernel would refuse.
export function parseSeconds(text) {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h)?$/.exec(text);
  return positive(match && Number(match[1]) * SECONDS[match[2] ?? 's']);
}

// '1G' -> 1024; null for anything that the kernel would refuse.
export function parseMegabytes(text) {
  const match = /^(\d+(?:\.\d+)?)([kmgt])(?:i?b)?$/i.exec(text);
  return positive(match && Math.ceil(Number(match[1]) * MEGABYTES[match[2].toLowerCase()]));
}

function positive(value) {
  return value > 0 ? value : null;
}

export function secondsText(seconds) {
  if (seconds > 0 && seconds < 0.001) return `${rounded(seconds * 1e6)} µs`;
  if (seconds > 0 && seconds < 1) return `${rounded(seconds * 1000)} ms`;
  if (seconds < 120) return `${rounded(seconds)} s`;
  if (seconds < 7200) return `${rounded(seconds / 60)} min`;
  return `${rounded(seconds / 3600)} h`;
}

export function bytesText(bytes) {
  for (const [unit, size] of Object.entries({ GB: 1 << 30, MB: 1 << 20, KB: 1 << 10 })) {
    if (bytes >= size) return `${rounded(bytes / size)} ${unit}`;
  }
  return bytes === 1 ? '1 byte' : `${bytes} bytes`;
}

export function megabytesText(megabytes) {
  return bytesText(Math.round(megabytes * (1 << 20)));
}

// Rounds to three significant digits; numbers of 100 and above to whole numbers.
function rounded(value) {
  return String(Number(value >= 100 ? value.toFixed(0) : value.toPrecision(3)));
}

// Controls that are not pressed by surprise (STEADY): an output can grow, shrink or ask for something, and so bring a control
// under the pointer of a user who is about to click elsewhere. A press counts if the control has been seen at one place for a
// while before it. Until then it is greyed (aria-disabled: disabled ones leave the order of Tab).
const STEADY_MILLISECONDS = 700;
// The looks are not evenly spaced: nobody can move a control away and back between them.
const LOOK_MILLISECONDS = { least: 30, more: 60 };

// Where a control stands, and since when. `place` is null while it is not seen.
export function stands(before, place, now) {
  return before?.place === place ? before : { place, since: now };
}

export function isSteady({ place, since }, now) {
  return place !== null && now - since >= STEADY_MILLISECONDS;
}

const states = new WeakMap();
const inView = new Set();
let observer = null;
let timer = null;

// The place of a control in the window; null if something lies over its middle or its middle is outside of the window.
function placeOf(node) {
  const { x, y, width, height } = node.getBoundingClientRect();
  const seen = document.elementFromPoint(x + width / 2, y + height / 2);
  return seen && node.contains(seen) ? [x, y, width, height].map(Math.round).join() : null;
}

function look(node, now = performance.now()) {
  const state = stands(states.get(node), placeOf(node), now);
  states.set(node, state);
  return show(node, isSteady(state, now));
}

function show(node, steady) {
  if (steady) node.removeAttribute('aria-disabled');
  else node.setAttribute('aria-disabled', 'true');
  return steady;
}

function lookAtAll() {
  for (const node of inView) look(node);
  timer = inView.size ? setTimeout(lookAtAll, LOOK_MILLISECONDS.least + Math.random() * LOOK_MILLISECONDS.more) : null;
}

function seen(entries) {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) inView.add(target);
    else inView.delete(target);
    look(target);
  }
  if (timer === null) lookAtAll();
}

// A press counts only after the control has stood still anew: what it does has changed.
export function wait(node) {
  states.delete(node);
  look(node);
}

// Makes a new control ignore presses while it is not steady.
export function pressWhenSteady(node) {
  let pressed = null; // what the pointer's press on it found; null for a press by a key
  const released = () => setTimeout(() => { pressed = null; }); // after the click
  node.addEventListener('pointerdown', () => {
    pressed = look(node);
    if (!pressed) wait(node); // someone who clicks fast means something else
    // Not when the control loses the focus: JupyterLab takes it for a cell that becomes the active one, before the click.
    for (const name of ['pointerup', 'pointercancel']) addEventListener(name, released, { once: true, capture: true });
  });
  // An ignored press does not move the focus: the next Enter would press the control.
  node.addEventListener('mousedown', (event) => {
    if (pressed === false) event.preventDefault();
  });
  // Tab can come here by surprise too: from a field of an output, for example.
  node.addEventListener('focus', () => {
    if (pressed !== true) wait(node);
  });
  node.addEventListener('click', (event) => {
    const counts = event.detail > 0 ? pressed === true : look(node);
    pressed = null;
    if (counts) return;
    event.stopImmediatePropagation();
    wait(node);
  });
  show(node, false);
  observer ??= new IntersectionObserver(seen);
  observer.observe(node);
}

// Every control that this extension draws, by its name, with the words on it. One table, so that a test can press them all
// (tests/browser/panel/test_every_control.py). Commands are in plugins.js.

// Words that are not the same each time, like the name of a file, are given where the control is made.
export const CONTROLS = {
  // The side panel: tabs, and what stands in each of them.
  'tab-changes': 'Files and changes',
  'tab-time': 'Time',
  'tab-access': 'Access',
  'work-here': 'Work on the notebook’s folder…',
  'apply-all': 'Apply all',
  'discard-all': 'Discard all',
  change: '',
  apply: 'Apply',
  discard: 'Discard',
  undo: 'Undo',
  redo: 'Redo',
  'name-present': 'Name the present state…',
  state: '',
  slide: '',
  'go-there': 'Go there',
  branch: 'Branch from here…',
  'name-state': 'Name it…',
  compare: 'Compare with',
  'compare-with': '',
  'change-limits': 'Change…',
  restart: 'Restart, keeping variables…',
  report: 'Measure what holds (report)',
  'long-text': '',
  // The dialog of limits.
  timeout: 'Time for each cell',
  memory: 'Memory',
  domains: 'Network: domains that cells may reach',
  mounts: 'Folders that cells may see',
  here: 'Work on the notebook’s folder; your files stay as they are until you apply changes',
  every: 'Time and memory also for all other notebooks, from their next start',
  // The status bar, and what stands below a cell.
  limits: '',
  'allow-install': 'Install for this notebook',
  'allow-copy': 'Copy the line for my terminal',
  'allow-once': 'Allow once',
  'allow-session': 'Allow for this session',
  'allow-folder': 'Work on the whole folder',
  'allow-never': 'Never',
  'allow-notebook': 'Allow for this notebook',
  'allow-nothing': 'Not now',
  receipt: '',
  copy: 'Copy',
  'stop-cell': 'Stop',
  more: 'Give more',
  'stop-frame': 'Stop it',
  'save-file': 'Save it',
};

// Those that something of a sandbox could bring under the pointer, and that do something. Outputs move what stands beside them;
// callbacks of widgets change which file an *Apply* is for. What is copied is our own text.
const STEADY = new Set(['apply', 'apply-all', 'allow-install', 'allow-once', 'allow-session', 'allow-folder', 'allow-never', 'allow-notebook', 'allow-nothing', 'stop-frame', 'save-file', 'more']);

// Buttons of dialogs, which JupyterLab draws.
export const DIALOG_BUTTONS = {
  change: 'Change',
  'restart-with': 'Restart, keeping variables',
  restart: 'Restart',
  drop: 'Drop',
  lose: 'Restart without them',
  name: 'Name it',
};

/**
 * @param {string} name
 * @param {string} tag
 * @param {{ text?: string, className?: string, attributes?: object, children?: (Node | string)[] }} [options]
 */
export function control(name, tag, { text = CONTROLS[name], attributes = {}, ...rest } = {}) {
  if (!Object.hasOwn(CONTROLS, name)) throw new Error(`no control is called ${name}`);
  const made = element(tag, { text, attributes: { 'data-control': name, ...attributes }, ...rest });
  if (STEADY.has(name)) pressWhenSteady(made);
  return made;
}

// Parts that several tabs and dialogs of the side panel are made of.

export function button(name, work, { label = '' } = {}) {
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
  const focused = body.contains(document.activeElement) ? /** @type {HTMLElement} */ (document.activeElement.closest('[data-control]')) : null;
  const [name, label, at] = focused ? [focused.dataset.control, focused.getAttribute('aria-label'), controls().indexOf(focused)] : [];
  const nth = focused ? controls().filter((one) => one.dataset.control === name).indexOf(focused) : -1;
  body.replaceChildren(...children);
  if (!focused) return;
  const now = controls();
  const same = now.filter((one) => one.dataset.control === name);
  const next = same.find((one) => one.getAttribute('aria-label') === label) ?? same[Math.min(nth, same.length - 1)] ?? now[Math.min(at, now.length - 1)];
  next?.focus();
}
