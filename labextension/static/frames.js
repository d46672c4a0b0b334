// Draws output of a sandbox that needs scripts, in frames that nothing leaves. The documents of a frame come from here,
// never from a notebook; see docs/security.md for what they allow.
import { FrameComms } from './frame-comms.js';
import { FRAME, readFrame } from './frame-facts.js';
import { guardFocus } from './frame-focus.js';
import { LIBRARY, keepLibrary, skipFrames } from './frame-libraries.js';
import { placeOf } from './frame-place.js';
import { FrameSpares } from './frame-spares.js';
import { FrameView } from './frame-view.js';

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

// The cell that the user goes into becomes the active one, as when the output were in the page.
function activateCell(tracker, frame) {
  const place = placeOf(frame);
  const notebook = tracker?.find(({ node }) => node.contains(place))?.content;
  const index = notebook?.widgets.findIndex(({ node }) => node.contains(place)) ?? -1;
  if (index >= 0) notebook.activeCellIndex = index;
}

export async function framesPlugin(shared) {
  const [{ IRenderMimeRegistry }, { Widget }, { IThemeManager }, { INotebookTracker }, { PageConfig }] = await Promise.all(
    ['@jupyterlab/rendermime', '@lumino/widgets', '@jupyterlab/apputils', '@jupyterlab/notebook', '@jupyterlab/coreutils'].map(shared),
  );
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
      const facts = readFrame(model.data[FRAME]);
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
