// Frames that wait with their libraries evaluated: the next output that needs the same ones is drawn at once. Evaluating
// Plotly takes a second, drawing a figure a tenth of it. A spare is used once, by one output; until then its messages
// are read for one answer only. It goes to its place without being loaded again, which needs Element.moveBefore.
import { withLibrary } from './frame-libraries.js';
import { emptyFrame, framePlace } from './frame-place.js';
import { hearPresses } from './frame-presses.js';

// Smaller libraries are evaluated quickly enough.
const LEAST_CHARACTERS = 500000;
const MOST_SPARES = 2;
const UNUSED_MILLISECONDS = 120000;
// What a library does once has been done then: a browser compiles a function when it is called first.
const WARM_UP = 'window.sandboxWarmUp?.()';
// The frame that has just been drawn goes first.
const PAUSE_MILLISECONDS = 300;

export class FrameSpares {
  // `outer(iframe)` gives a frame its document.
  constructor(outer) {
    this.outer = outer;
    this.spares = new Map();
    this.isPossible = typeof Element.prototype.moveBefore === 'function';
  }

  frames() {
    return [...this.spares.values()].map(({ iframe }) => iframe);
  }

  // The frame that waits with these libraries, which is the caller's from now on; null if none does.
  take(libraries) {
    const key = libraries.join();
    const spare = this.spares.get(key);
    if (!spare?.iframe.dataset.loaded) return null;
    this.forget(key);
    return spare.iframe;
  }

  // Called after an output with these libraries was drawn: others of its kind often follow.
  prepare(libraries) {
    const key = libraries.join();
    if (!this.isPossible || !libraries.length || this.spares.has(key)) return;
    setTimeout(() => this.make(key, libraries), PAUSE_MILLISECONDS);
  }

  async make(key, libraries) {
    if (this.spares.has(key)) return;
    const sources = await Promise.all(libraries.map((name) => new Promise((use) => withLibrary(name, use, () => use('')))));
    if (this.spares.has(key) || sources.reduce((sum, { length }) => sum + length, 0) < LEAST_CHARACTERS) return;
    while (this.spares.size >= MOST_SPARES) this.end([...this.spares.keys()][0]);
    const iframe = emptyFrame();
    const say = (message) => iframe.contentWindow.postMessage({ ...message, sandboxFrame: 1 }, '*');
    const spare = { iframe };
    spare.listen = ({ source, data }) => {
      if (source !== iframe.contentWindow || data?.sandboxFrame !== 1) return;
      if (data.type === 'ready') {
        hearPresses(iframe);
        for (const library of [...sources, WARM_UP]) say({ type: 'library', source: library });
        say({ type: 'ping' });
      } else if (data.type === 'pong') iframe.dataset.loaded = 'true';
    };
    spare.timer = setTimeout(() => this.end(key), UNUSED_MILLISECONDS);
    this.spares.set(key, spare);
    addEventListener('message', spare.listen);
    this.outer(iframe);
    this.place().append(iframe);
  }

  place() {
    this.node ??= framePlace({ className: 'jp-SandboxFrame-spares', attributes: { 'aria-hidden': 'true' } });
    if (!this.node.isConnected) document.body.append(this.node);
    return this.node.shadowRoot;
  }

  forget(key) {
    const { listen, timer } = this.spares.get(key);
    removeEventListener('message', listen);
    clearTimeout(timer);
    this.spares.delete(key);
  }

  // Ends the spare with this frame, which took the keyboard.
  dismiss(frame) {
    for (const [key, { iframe }] of this.spares) if (iframe === frame) this.end(key);
  }

  endAll() {
    for (const key of [...this.spares.keys()]) this.end(key);
  }

  end(key) {
    const { iframe } = this.spares.get(key) ?? {};
    if (!iframe) return;
    this.forget(key);
    iframe.remove();
  }
}
