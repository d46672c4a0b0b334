// One frame on the page: made when it comes into view, filled when it is ready, watched while it is there.
import { control } from './controls.js';
import { element, saveFile } from './dom.js';
import { droppedSentence, fileToSave, namedHosts, refusedSentence } from './frame-facts.js';
import { FrameHeight } from './frame-height.js';
import { withLibrary } from './frame-libraries.js';
import { emptyFrame, framePlace } from './frame-place.js';
import { hearPresses, lastPress } from './frame-presses.js';
import { themeVariables } from './theme-variables.js';
import { bytesText } from './units.js';

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
    const { node } = widget;
    this.widget = widget;
    this.node = node;
    this.facts = facts;
    this.page = page;
    this.iframe = null;
    this.stopped = false;
    this.sentences = new Set();
    this.needed = new Set(); // libraries that this frame has asked for
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
  }

  unload() {
    this.page.comms?.detach(this);
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
    if (this.isReady) this.say({ type: 'theme', dark: this.page.isDark(), variables: themeVariables() });
  }

  receive({ source, data }) {
    // Only the outer document of this very frame, which passes on few kinds of messages.
    if (!this.iframe || source !== this.iframe.contentWindow || data?.sandboxFrame !== 1) return;
    this.answered = performance.now();
    if (data.type === 'ready') this.fill();
    else if (data.type === 'height') this.height.ask(data.height);
    else if (data.type === 'pong') this.revive();
    else if (data.type === 'dropped') this.tell(droppedSentence(data));
    else if (data.type === 'refused') this.tellRefused(data);
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
        withLibrary(name, use, () => this.tell(NO_CODE));
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
    withLibrary(name, use, () => this.tell(NO_CODE));
  }

  draw() {
    this.say({ type: 'show', html: this.facts.html });
    this.page.spares.prepare(this.facts.libraries);
  }

  // A frame can send this as often as it likes: its markup is searched once.
  tellRefused(data) {
    if (this.sentences.size >= MOST_SENTENCES) return;
    this.named ??= namedHosts(this.facts.html);
    this.tell(refusedSentence(data, this.named));
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
