// Shows the output of a cell that another page has started: a tab was closed, or loaded anew, while a cell ran.
// JupyterLab gives output to the page that ran the cell only. The kernel keeps it (notebook/page/kept_output.py).
import { newestRuns, withPlace } from './cell-places.js';

const TARGET = 'sandbox-kernel.output';
const PATIENCE_MS = 10_000;
const IMPLEMENTATION = 'sandbox-kernel';
const PLACES = 'sandbox-kernel:places';
// Set while a page draws output of a kernel, by the kernel's id. Still there when a page is loaded: that page hung.
const DRAWING = 'sandbox-kernel:drawing:';
const OUTPUTS = ['stream', 'display_data', 'execute_result', 'error'];
const DRAWN_MS = 1_000;
const drawing = new Set();
// Cells that this page has run: JupyterLab itself shows what they give.
const ranHere = new WeakSet();

export async function reopenedPlugin(shared) {
  const { INotebookTracker, NotebookActions } = await shared('@jupyterlab/notebook');
  return {
    id: 'sandbox-kernel:reopened',
    description: 'Shows the output of a sandbox cell that went on while its notebook was closed.',
    autoStart: true,
    requires: [INotebookTracker],
    activate: (_app, tracker) => {
      window.addEventListener('pagehide', () => drawing.forEach(drawn));
      tracker.forEach(follow);
      tracker.widgetAdded.connect((_tracker, panel) => follow(panel));
      NotebookActions.executionScheduled.connect((_actions, { notebook, cell }) => {
        ranHere.add(cell.model);
        notePlace(notebook, cell);
      });
    },
  };
}

// Asks the kernel of a notebook that was just opened, once.
async function follow(panel) {
  await panel.context.ready;
  await panel.sessionContext.ready;
  const kernel = panel.sessionContext.session?.kernel;
  const info = await kernel?.info;
  if (!kernel || panel.isDisposed || info.implementation !== IMPLEMENTATION) return;
  const followed = new Map(); // request -> its cell
  const hung = tookTooLong(kernel.id);
  kernel.iopubMessage.connect((_kernel, message) => {
    if (OUTPUTS.includes(message.header.msg_type)) noteDrawing(kernel.id);
    const request = message.parent_header.msg_id;
    const cell = followed.get(request);
    if (!cell || cell.view.isDisposed || ranHere.has(cell.view.model)) return;
    const { msg_type: kind } = message.header;
    if (kind !== 'status') cell.take(kind, message.content);
    else if (message.content.execution_state === 'idle') cell.end();
  });
  const comm = kernel.createComm(TARGET);
  // The shell is busy with the cell: only a subshell can answer meanwhile.
  await Promise.race([comm.subshellStarted, new Promise((done) => setTimeout(done, PATIENCE_MS))]);
  Object.assign(comm, {
    onMsg: ({ content }) => {
      for (const [{ view }, shown] of newestRuns(cellsOf(panel.content), content.data.shown, places())) {
        if (shown.client === kernel.clientId || ranHere.has(view.model)) continue;
        if (!shown.running && view.model.executionCount !== null) continue;
        const cell = new ReopenedCell(view, shown.count);
        // Behind JupyterLab's own button: output that is hidden is not drawn.
        if (hung) view.outputHidden = true;
        else noteDrawing(kernel.id);
        cell.show(shown);
        followed.set(shown.request, cell);
      }
      comm.close();
    },
  });
  comm.open();
}

// Notes that output is drawn, until the page has drawn a frame and answers again, or is left in good order.
function noteDrawing(kernel) {
  const name = DRAWING + kernel;
  if (drawing.has(name)) return;
  drawing.add(name);
  try {
    localStorage.setItem(name, '1');
  } catch {
    // A browser that keeps nothing: what hung the page is drawn again.
  }
  requestAnimationFrame(() => setTimeout(() => drawn(name), DRAWN_MS));
}

function drawn(name) {
  drawing.delete(name);
  localStorage.removeItem(name);
}

// Whether a page hung with output of this kernel: it was still drawing it, and had no time to say that it goes.
function tookTooLong(kernel) {
  if (drawing.has(DRAWING + kernel)) return false;
  try {
    const hung = localStorage.getItem(DRAWING + kernel) !== null;
    localStorage.removeItem(DRAWING + kernel);
    return hung;
  } catch {
    return false;
  }
}

function cellsOf(notebook) {
  const views = notebook.widgets.filter(({ model }) => model.type === 'code');
  return views.map((view) => ({ id: view.model.id, source: view.model.sharedModel.getSource(), view }));
}

function notePlace(notebook, { model }) {
  const known = places();
  const more = withPlace(cellsOf(notebook), model.id, known);
  if (more === known) return;
  try {
    localStorage.setItem(PLACES, JSON.stringify(more));
  } catch {
    // A browser that keeps nothing: after a reload nobody knows which of the equal cells it was.
  }
}

function places() {
  try {
    const kept = JSON.parse(localStorage.getItem(PLACES) ?? '[]');
    return Array.isArray(kept) ? kept.filter(Array.isArray) : [];
  } catch {
    return [];
  }
}

class ReopenedCell {
  constructor(view, count) {
    this.view = view;
    this.count = count;
    this.places = new Map(); // display id -> index of its output
    this.clearsNext = false;
  }

  show({ messages, running, cut }) {
    this.clear();
    if (running) this.view.setPrompt('*');
    for (const { kind, content } of messages) this.take(kind, content);
    if (cut) this.take('stream', { name: 'stderr', text: '[further output is not kept while no page is open]\n' });
    if (!running) this.end();
  }

  get outputs() {
    return this.view.model.outputs;
  }

  clear() {
    this.clearsNext = false;
    this.places.clear();
    this.outputs.clear();
  }

  take(kind, content) {
    const id = content.transient?.display_id;
    if (kind === 'clear_output') {
      if (content.wait) this.clearsNext = true;
      else this.clear();
    } else if (kind === 'update_display_data') {
      if (this.places.has(id)) this.outputs.set(this.places.get(id), output('display_data', content));
    } else if (OUTPUTS.includes(kind)) {
      if (this.clearsNext) this.clear();
      this.outputs.add(output(kind, content));
      if (id) this.places.set(id, this.outputs.length - 1);
    }
  }

  end() {
    this.view.model.executionCount = this.count;
    this.view.setPrompt(String(this.count));
  }
}

function output(kind, { transient: _transient, ...content }) {
  return { ...content, output_type: kind };
}
