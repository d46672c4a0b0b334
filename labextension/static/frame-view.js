// One frame: what a notebook and the frame say about it, its place in the page, its height, and what it shows.

// Reads what a notebook and a frame say about a frame: every value is checked, because both may be hostile.
import { bytesText, control, element, saveFile } from './dom.js';
import { withLibrary } from './frame-comms.js';

export const FRAME = 'application/vnd.sandbox-kernel.frame+json';

const MOST = { markup: 12 << 20, libraries: 16, height: 2000 };
// What a program asks for has narrower bounds: sandbox_kernel/untrusted/frames/document.py.
const LEAST_HEIGHT = 4;
const REFUSED = {
  script: 'a script', style: 'a style sheet', picture: 'a picture', font: 'a font', data: 'data', media: 'a sound or video',
  page: 'something',
};

// The ids of a widget differ in each run, so they are no part of the output.
export function readFrame(data, ids) {
  const { html, libraries = [], height } = data ?? {};
  if (typeof html !== 'string' || html.length > MOST.markup) return null;
  if (!Array.isArray(libraries) || libraries.length > MOST.libraries) return null;
  if (!libraries.every((name) => typeof name === 'string' && /^[0-9a-f]{64}$/.test(name))) return null;
  return { html, libraries, height: fittingHeight(height), widget: readWidget(ids) };
}

function readWidget(widget) {
  const { model_id: model, gate } = widget ?? {};
  const isName = (text) => typeof text === 'string' && /^[0-9a-f-]{1,64}$/.test(text);
  return isName(model) && isName(gate) ? { model, gate } : null;
}

export function fittingHeight(height) {
  return Math.min(Math.max(Number(height) || 0, LEAST_HEIGHT), MOST.height);
}

// The sentence for something that a frame wanted to load; null when it is none.
export function refusedSentence({ what, host }) {
  if (typeof host !== 'string' || !/^[A-Za-z0-9.:-]{1,100}$/.test(host)) return null;
  return `This output wanted to load ${Object.hasOwn(REFUSED, what) ? REFUSED[what] : REFUSED.page} from ${host}: blocked`;
}

// The sentence for a message that was larger than a frame may send; its numbers come from our own outer document.
export function droppedSentence({ bytes, most, isFile, isSaved }) {
  if (bytes === Infinity) return 'This output sent a message that is not passed on: only text, numbers, lists, tables and buffers are';
  const inMegabytes = (number, round) => `${round((Number(number) || 0) / 1048576)} MB`;
  const [size, limit] = [inMegabytes(bytes, Math.ceil), inMegabytes(most, Math.floor)];
  if (isFile !== true) return `This output sent ${size} at once: dropped, ${limit} is the most`;
  if (isSaved === true) return `Not saved: a file of ${size}, and ${limit} in 10 seconds is the most. Let the program write it into a folder (--here)`;
  return `Not uploaded: ${size}, and ${limit} in 10 seconds is the most. Put larger files into a folder of the session (--here, --mount)`;
}

// What a browser adds to the name of a file that has no ending.
const ENDINGS = new Map(Object.entries({
  'image/png': '.png', 'image/jpeg': '.jpg', 'image/svg+xml': '.svg', 'text/csv': '.csv', 'text/plain': '.txt', 'application/json': '.json',
}));

// All but letters, digits and signs that are seen as they are: what turns the direction of writing, letters that are drawn as
// nothing or as a blank; and what a system does not take.
const UNSEEN = /[^\p{L}\p{M}\p{N}\p{P}\p{S} ]|\p{Default_Ignorable_Code_Point}|[\u2800<>:"|?*]/gu;

// A file that an output wants to save: a name that can be shown and saved, without a path, and its bytes; null when it is none.
export function fileToSave({ name, kind, file }) {
  if (!(file instanceof ArrayBuffer)) return null;
  const seen = String(name).split(/[\\/]/).at(-1).replace(UNSEEN, '').replace(/ +/g, ' ').replace(/^[. ]+$|[. ]+$/g, '');
  const named = [...seen].slice(-100).join('');
  const begun = /^[^. ]/.test(named) ? named : `output${named.trim()}`;
  return { name: `${begun}${begun.includes('.') ? '' : (ENDINGS.get(kind) ?? '')}`, file };
}

// Where a frame stands: in a shadow tree. The windows of frames in shadow trees are in no list (`top.frames`), so code in one
// frame does not get at the window of another: it could focus it, and the other would seem to have taken the keyboard.

export function framePlace(options) {
  const place = element('div', options);
  place.attachShadow({ mode: 'open' });
  return place;
}

// A frame without a document. Its style is that of its `part`.
export function emptyFrame() {
  return element('iframe', { attributes: { sandbox: 'allow-scripts', title: 'output of a sandbox', part: 'frame' } });
}

// The element of the page that a frame stands in.
export function placeOf(frame) {
  return frame.getRootNode().host ?? frame;
}

// When the user has pressed, or pressed Tab, in a frame, which the page does not see. The loader of a frame tells it through a port that it
// gets before any code of the output.
const times = new WeakMap();
const tabs = new WeakMap();
const ports = new WeakMap();
const ANSWER_MILLISECONDS = 100;

// Called each time that the outer document of a frame is ready.
export function hearPresses(iframe) {
  const { port1, port2 } = new MessageChannel();
  port1.addEventListener('message', ({ data }) => {
    const time = performance.now();
    if (data === 'tab' || data === 'tab back') tabs.set(iframe, { time, isBack: data === 'tab back' });
    else if (data !== 'told') times.set(iframe, time);
  });
  port1.start();
  ports.set(iframe, port1);
  iframe.contentWindow.postMessage({ type: 'presses', sandboxFrame: 1 }, '*', [port2]);
}

// Ends when the frame has told the presses before now, or does not answer. In Firefox a frame has the focus before the page
// hears of the press that gave it.
export function pressesTold(iframe) {
  return new Promise((end) => {
    const port = ports.get(iframe);
    port?.addEventListener('message', end, { once: true });
    port?.postMessage('tell');
    setTimeout(end, port ? ANSWER_MILLISECONDS : 0);
  });
}

// The time of the last press in a frame, by the clock of the page; there may be no frame.
export function lastPress(iframe) {
  return times.get(iframe) ?? -Infinity;
}

// When Tab was pressed in a frame the last time, and whether it was Shift+Tab.
export function lastTab(iframe) {
  return tabs.get(iframe) ?? { time: -Infinity, isBack: false };
}

// Colours and fonts of the page's theme, which widgets in frames use: variables of JupyterLab, and nothing else of the page.
const COLOURS = ['brand', 'accent', 'success', 'info', 'warn', 'error', 'border', 'layout', 'content-font', 'ui-font', 'inverse-layout'];
const OTHERS = [
  ...['ui-font-family', 'ui-font-size1', 'content-font-family', 'code-font-family', 'code-font-size', 'border-width', 'content-link-color'],
  ...['content-line-height', 'code-line-height', 'rendermime-table-row-background', 'rendermime-table-row-hover-background'],
  ...[1, 2, 3, 4, 5].map((level) => `content-font-size${level}`),
];
const NAMES = [...COLOURS.flatMap((name) => [0, 1, 2, 3, 4].map((level) => `--jp-${name}-color${level}`)), ...OTHERS.map((name) => `--jp-${name}`)];

export function themeVariables() {
  const style = getComputedStyle(document.body);
  return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(name).trim()]).filter(([, value]) => value));
}

// The height of a frame on the page. Growing is prompt, because outputs are drawn in steps. Shrinking brings what stands below
// under the pointer: it waits until the user has left the frame, and longer each time that the frame shrinks again.

// After the pointer has left the frame, or a press in it.
const USED_MILLISECONDS = 1000;
const WAIT_MILLISECONDS = 250;
const MEMORY_MILLISECONDS = 60000;

// How many milliseconds a frame still waits before it shrinks. `shrinks` tells how long ago it has shrunk before, `asking` how
// long it has wanted to without a break, `unused` how long the pointer has been elsewhere.
export function shrinkWait({ shrinks, asking, unused }) {
  const recent = shrinks.filter((ago) => ago < MEMORY_MILLISECONDS).length;
  return Math.max(WAIT_MILLISECONDS * 2 ** recent - asking, USED_MILLISECONDS - unused, 0);
}

export class FrameHeight {
  // `lastPress()` is the time of the user's last press in the frame.
  constructor(place, height, lastPress) {
    this.place = place;
    this.lastPress = lastPress;
    this.shrinks = [];
    this.isFitted = false;
    this.left = -Infinity;
    place.addEventListener('pointerenter', () => {
      this.left = Infinity;
    });
    place.addEventListener('pointerleave', () => {
      this.left = performance.now();
      this.settle();
    });
    this.show(height);
  }

  show(height) {
    this.asked = height;
    this.shown = height;
    this.asking = null; // since when it wants to be smaller
    this.place.style.height = `${height}px`;
  }

  // What the frame says, at any time. The first is its fit, which waits for nothing.
  ask(height) {
    this.asked = fittingHeight(height);
    if (this.asked >= this.shown || !this.isFitted) this.show(this.asked);
    this.isFitted = true;
    this.settle();
  }

  settle() {
    clearTimeout(this.timer);
    if (this.asked >= this.shown || this.left === Infinity) return;
    const now = performance.now();
    this.asking ??= now;
    const shrinks = this.shrinks.map((time) => now - time);
    const wait = shrinkWait({ shrinks, asking: now - this.asking, unused: now - Math.max(this.left, this.lastPress()) });
    if (wait > 0) {
      this.timer = setTimeout(() => this.settle(), wait);
      return;
    }
    this.shrinks = [...this.shrinks, now].filter((time) => now - time < MEMORY_MILLISECONDS);
    this.show(this.asked);
  }

  end() {
    clearTimeout(this.timer);
    this.place.style.height = '';
  }
}

// One frame on the page: made when it comes into view, filled when it is ready, watched while it is there.

// Frames this far outside of the window are made, so that they are there when the user scrolls to them.
const MARGIN = 400;
const PING_MILLISECONDS = 2000;
const SILENT_MILLISECONDS = 8000;
const MOST_SENTENCES = 8;
const MOST_PRINTED = 10000;
const MOST_NEEDED = 16;
const NO_CODE = 'This output needs code that is not in this notebook: run its cell again';

export class FrameView {
  // `widget` is the renderer on the page. `page` gives what all frames share: outer(), isDark(), reloadOthers(view),
  // visible(view), spares, comms.
  constructor(widget, facts, page) {
    this.printed = null;
    const { node } = widget;
    this.widget = widget;
    this.node = node;
    this.facts = facts;
    this.page = page;
    this.iframe = null;
    this.stopped = false;
    this.sentences = new Set();
    this.needed = new Set(); // libraries that this frame has asked for
    this.unsent = []; // messages of its widget
    this.unanswered = [];
    this.place = framePlace({ className: 'jp-SandboxFrame-place' });
    this.notes = element('div', { className: 'jp-SandboxFrame-notes' });
    this.height = new FrameHeight(this.place, facts.height, () => lastPress(this.iframe));
    node.replaceChildren(this.place, this.notes);
    this.listen = (event) => this.receive(event);
    addEventListener('message', this.listen);
    this.observer = new IntersectionObserver((entries) => this.seen(entries.at(-1).isIntersecting), { rootMargin: `${MARGIN}px` });
    this.observer.observe(node);
    this.timer = setInterval(() => this.ping(), PING_MILLISECONDS);
  }

  // Called when the output is in the document. The observer answers with the next picture of the page, which comes late
  // while the page is busy with the other outputs of a cell; what is in view is made at once.
  attached() {
    const { top, bottom, width } = this.node.getBoundingClientRect();
    if (width > 0 && bottom > -MARGIN && top < innerHeight + MARGIN) this.seen(true);
  }

  seen(isSeen) {
    this.isSeen = isSeen;
    if (!isSeen || this.stopped) return;
    this.page.visible(this);
    if (!this.iframe && !this.isGone) this.make();
  }

  make() {
    this.page.comms?.detach(this);
    this.answered = performance.now();
    const spare = this.node.isConnected ? this.page.spares.take(this.facts.libraries) : null;
    if (spare) {
      this.iframe = spare;
      this.place.shadowRoot.replaceChildren();
      this.place.shadowRoot.moveBefore(spare, null);
      this.isReady = true;
      this.needed = new Set();
      this.theme();
      this.draw();
      return;
    }
    const iframe = emptyFrame();
    this.page.outer(iframe);
    this.iframe = iframe;
    this.isReady = false;
    this.place.shadowRoot.replaceChildren(iframe);
    // Unpacked while the document is loaded.
    for (const name of this.facts.libraries) withLibrary(name, () => {}, () => {}, () => this.iframe === iframe);
  }

  unload() {
    this.page.comms?.detach(this);
    this.place.style.colorScheme = '';
    this.iframe = null;
    this.isReady = false;
    this.place.shadowRoot.replaceChildren();
  }

  // Its session has closed the widget: it takes no place, unless the session goes back to where it was open.
  vanish() {
    this.isGone = true;
    this.unload();
    this.node.dataset.gone = '';
  }

  appear() {
    if (!this.isGone) return;
    this.isGone = false;
    delete this.node.dataset.gone;
  }

  reload() {
    if (!this.iframe || this.stopped) return;
    this.unload();
    if (this.isSeen) this.make();
  }

  say(message, transfer = []) {
    this.iframe?.contentWindow?.postMessage({ ...message, sandboxFrame: 1 }, '*', transfer);
  }

  theme() {
    if (this.place.style.colorScheme) this.fitColours();
    if (this.isReady) this.say({ type: 'theme', dark: this.page.isDark(), variables: themeVariables() });
  }

  // Only a document with the colour scheme of its place lets the page be seen behind it. A new one is light until it has drawn.
  fitColours() {
    this.place.style.colorScheme = this.page.isDark() ? 'dark' : 'light';
  }

  receive({ source, data }) {
    // Only the outer document of this very frame, which passes on few kinds of messages.
    if (!this.iframe || source !== this.iframe.contentWindow || data?.sandboxFrame !== 1) return;
    this.answered = performance.now();
    if (data.type === 'ready') this.fill();
    else if (data.type === 'height') {
      this.fitColours();
      this.height.ask(data.height);
    } else if (data.type === 'pong') this.revive();
    else if (data.type === 'dropped') this.tell(droppedSentence(data));
    else if (data.type === 'refused') this.tell(refusedSentence(data));
    else if (data.type === 'save') this.askToSave(fileToSave(data));
    else if (data.type === 'needs') this.give(data.sha256);
    else if (this.facts.widget) this.page.comms?.receive(this, data);
  }

  // Called each time that the outer document is loaded: moving a frame on the page loads it again.
  async fill() {
    this.isReady = true;
    this.page.comms?.detach(this);
    this.needed = new Set();
    const iframe = this.iframe;
    hearPresses(iframe);
    this.theme();
    for (const name of this.facts.libraries) {
      const source = await new Promise((use) => {
        withLibrary(name, use, () => this.tell(NO_CODE), () => this.iframe === iframe);
      });
      if (this.iframe !== iframe) return;
      this.say({ type: 'library', source });
    }
    this.draw();
  }

  // A figure inside an Output widget needs code that the widget does not.
  give(name) {
    const { iframe } = this;
    if (!/^[0-9a-f]{64}$/.test(name) || this.needed.has(name) || this.needed.size >= MOST_NEEDED) return;
    this.needed.add(name);
    const use = (source) => this.iframe === iframe && this.say({ type: 'library', sha256: name, source });
    withLibrary(name, use, () => this.tell(NO_CODE), () => this.iframe === iframe);
  }

  draw() {
    this.say({ type: 'show', html: this.facts.html });
    this.page.spares.prepare(this.facts.libraries);
  }

  tell(sentence) {
    if (!sentence || this.sentences.has(sentence) || this.sentences.size >= MOST_SENTENCES) return;
    this.sentences.add(sentence);
    this.notes.append(element('div', { text: sentence }));
  }

  // A file that the output wants to save: the user sees its name and decides. A later one takes its place.
  askToSave(asked) {
    if (!asked) return;
    const button = control('save-file', 'button', { attributes: { type: 'button', 'data-lm-suppress-shortcuts': 'true' } });
    button.addEventListener('click', () => {
      saveFile(asked.name, asked.file);
      this.dropFile();
    });
    this.dropFile();
    const text = `This output wants to save a file: ${asked.name} (${bytesText(asked.file.byteLength)}).`;
    this.asked = element('div', { className: 'jp-SandboxFrame-bar', children: [element('span', { text }), button] });
    this.node.prepend(this.asked);
  }

  dropFile() {
    this.asked?.remove();
    this.asked = null;
  }

  // What callbacks of widgets print, below their frame; the newest stays.
  print(text) {
    this.printed ??= this.node.appendChild(element('pre', { className: 'jp-SandboxFrame-printed' }));
    this.printed.textContent = (this.printed.textContent + text).slice(-MOST_PRINTED);
  }

  ping() {
    if (!this.isReady || !this.isSeen || document.visibilityState !== 'visible' || !this.node.isConnected) {
      this.answered = performance.now();
      return;
    }
    this.say({ type: 'ping' });
    if (performance.now() - this.answered > SILENT_MILLISECONDS) this.offerStop();
  }

  offerStop() {
    if (this.bar) return;
    const button = control('stop-frame', 'button', { attributes: { type: 'button', 'data-lm-suppress-shortcuts': 'true' } });
    button.addEventListener('click', () => this.stop());
    this.bar = element('div', {
      className: 'jp-SandboxFrame-bar',
      attributes: { role: 'alert' },
      children: [element('span', { text: 'This output stopped answering.' }), button],
    });
    this.node.prepend(this.bar);
  }

  revive() {
    this.bar?.remove();
    this.bar = null;
  }

  // Frames of a page share one process: a loop in one stops all, so the others are loaded again.
  stop() {
    this.end('This output was stopped: it did not answer any more.');
    this.page.reloadOthers(this);
  }

  end(why) {
    this.stopped = true;
    this.unload();
    this.revive();
    this.height.end();
    this.tell(why);
  }

  dispose() {
    this.unload();
    this.height.end();
    clearInterval(this.timer);
    this.observer.disconnect();
    removeEventListener('message', this.listen);
  }
}
