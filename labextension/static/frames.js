// Draws outputs that need scripts in frames without rights, and keeps frames ready for the next ones.

// Frames that wait with their libraries evaluated: the next output that needs the same ones is drawn at once. Evaluating
// Plotly takes a second, drawing a figure a tenth of it. A spare is used once, by one output; until then its messages
// are read for one answer only. It goes to its place without being loaded again, which needs Element.moveBefore.
import { FrameComms, LIBRARY, hearLibrary, keepLibrary, setFetch, skipFrames, withLibrary } from './frame-comms.js';
import { guardFocus } from './frame-focus.js';
import { FRAME, FrameView, emptyFrame, framePlace, hearPresses, placeOf, readFrame } from './frame-view.js';

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
    this.node = null;
    this.isPossible = typeof (/** @type {any} */ (Element.prototype).moveBefore) === 'function';
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

// Draws output of a sandbox that needs scripts, in frames that nothing leaves. The documents of a frame come from here,
// never from a notebook; see docs/security.md for what they allow.

// More frames than this do not live at once; those that were not seen for the longest time are unloaded.
const MOST_FRAMES = 24;

// The address of the outer document on the server, whose headers close more than a document can by itself; null where the
// server has another version of it, or none.
async function servedDocument(base, text) {
  const address = new URL(`sandbox-kernel/frame?${text.length}`, base).href;
  try {
    const answer = await fetch(address, { credentials: 'omit' });
    return answer.ok && answer.headers.has('Connection-Allowlist') && (await answer.text()) === text ? address : null;
  } catch {
    return null;
  }
}

// Libraries come from the kernel when a cell shows its first figure, and from the server for a notebook that was saved.
const TOLD = 'sandbox_library';

function hearLibraries(panel) {
  panel.sessionContext.iopubMessage.connect((_context, { header, content }) => {
    if (header.msg_type === TOLD) hearLibrary(content);
  });
}

// The cell that the user goes into becomes the active one, as when the output were in the page.
function activateCell(tracker, frame) {
  const place = placeOf(frame);
  const notebook = tracker?.find(({ node }) => node.contains(place))?.content;
  const index = notebook?.widgets.findIndex(({ node }) => node.contains(place)) ?? -1;
  if (index >= 0) notebook.activeCellIndex = index;
}

/** @param {import('lab-modules').Shared} shared */
export async function framesPlugin(shared) {
  const [{ IRenderMimeRegistry }, { Widget }, { IThemeManager }, { INotebookTracker }, { PageConfig }, { ServerConnection }] = await shared('@jupyterlab/rendermime', '@lumino/widgets', '@jupyterlab/apputils', '@jupyterlab/notebook', '@jupyterlab/coreutils', '@jupyterlab/services');
  const text = await (await fetch(new URL('./frame-document.txt', import.meta.url))).text();
  const served = await servedDocument(PageConfig.getBaseUrl(), text);
  const views = new Set();
  let themes = null;

  const page = {
    isDark: () => Boolean(themes?.theme) && !themes.isLight(themes.theme),
    outer(iframe) {
      if (served) iframe.src = served;
      else iframe.srcdoc = text;
    },
    // Called with a view that came into sight: it becomes the newest, and the oldest may have to go.
    visible(view) {
      views.delete(view);
      views.add(view);
      const alive = [...views].filter((each) => each.iframe && !each.isSeen);
      alive.slice(0, Math.max(0, alive.length - MOST_FRAMES)).forEach((each) => each.unload());
    },
    reloadOthers(view) {
      page.spares.endAll();
      for (const each of views) if (each !== view) each.reload();
    },
  };

  page.spares = new FrameSpares(page.outer);

  const viewOf = (frame) => [...views].find(({ iframe }) => iframe === frame);

  class Frame extends Widget {
    constructor() {
      super();
      this.addClass('jp-SandboxFrame');
    }

    async renderModel(model) {
      const facts = readFrame(model.data[FRAME], model.metadata?.[FRAME]);
      this.clear();
      if (!facts) {
        this.node.textContent = '[this output is damaged]';
        return;
      }
      if (facts.html === '') {
        this.node.dataset.gone = ''; // it only brought libraries
        return;
      }
      this.view = new FrameView(this, facts, page);
      views.add(this.view);
      if (this.isAttached) this.view.attached();
    }

    onAfterAttach() {
      this.view?.attached();
    }

    clear() {
      this.view?.dispose();
      views.delete(this.view);
    }

    dispose() {
      this.clear();
      super.dispose();
    }
  }

  class Library extends Widget {
    async renderModel(model) {
      await keepLibrary(model.data);
    }
  }

  return {
    id: 'sandbox-kernel:frames',
    description: 'Draws interactive output of a sandbox in isolated frames.',
    autoStart: true,
    requires: [IRenderMimeRegistry],
    optional: [IThemeManager, INotebookTracker],
    activate: (_app, registry, manager, tracker) => {
      if (tracker) page.comms = new FrameComms(tracker);
      tracker?.forEach(hearLibraries);
      tracker?.widgetAdded.connect((_tracker, panel) => hearLibraries(panel));
      setFetch(async (name) => {
        const address = `${PageConfig.getBaseUrl()}sandbox-kernel/library/${name}`;
        const answer = await ServerConnection.makeRequest(address, {}, ServerConnection.makeSettings());
        return answer.ok ? answer.arrayBuffer() : null;
      });
      themes = manager;
      themes?.themeChanged.connect(() => views.forEach((view) => view.theme()));
      skipFrames(registry.sanitizer);
      registry.addFactory({ safe: true, mimeTypes: [FRAME], createRenderer: () => new Frame() }, 0);
      registry.addFactory({ safe: true, mimeTypes: [LIBRARY], createRenderer: () => new Library() }, 0);
      guardFocus({
        frames: () => [...[...views].map(({ iframe }) => iframe).filter(Boolean), ...page.spares.frames()],
        enter: (frame) => viewOf(frame)?.say({ type: 'focus' }),
        entered: (frame) => activateCell(tracker, frame),
        remove: (frame) => {
          viewOf(frame)?.end('This output was stopped: it took the keyboard.');
          page.spares.dismiss(frame);
        },
      });
    },
  };
}
