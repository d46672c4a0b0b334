// Outputs of cells that a page did not see running: after a reload, and after time travel.

// Which cell of a notebook a request came from. Pure: cells are `{ id, source }`, in their order.
// A page makes up ids of its own for the cells of an old notebook (nbformat before 4.5). There it is the only cell with
// the same source, or the one at the place that an earlier page of this browser has noted down.
import { pastCells, readTree } from './panel-facts.js';

const MOST_PLACES = 200;

export function findCell(cells, { cell, code }, places) {
  const named = cells.find(({ id }) => id === cell);
  if (named) return named;
  const same = cells.filter(({ source }) => source === code);
  if (same.length < 2) return same[0];
  const place = places.find(([id, , count]) => id === cell && count === same.length);
  return place && same[place[1]];
}

// Pairs of a cell and its newest run. `shown` has all runs that the kernel keeps, in the order in which they began.
export function newestRuns(cells, shown, places) {
  const newest = new Map();
  for (const run of shown) {
    const cell = findCell(cells, run, places);
    if (cell) newest.set(cell, run);
  }
  return [...newest];
}

// The noted places and that of a cell which is about to run; only cells that share their source with others need one.
export function withPlace(cells, id, places) {
  const source = cells.find((cell) => cell.id === id)?.source;
  const same = cells.filter((cell) => cell.source === source);
  if (same.length < 2) return places;
  const place = [id, same.findIndex((cell) => cell.id === id), same.length];
  return [place, ...places.filter(([other]) => other !== id)].slice(0, MOST_PLACES);
}

// Marks the cells of a notebook whose last run belongs to a state that was left: their variables are not there now.

const MOVES = new Set(['undo', 'redo', 'go']);
// Lines that move the session; the kernel is asked after cells with one of them, and while something is marked.
const MOVING_LINE = /^[^\S\n]*%sandbox[^\S\n]+(?:undo|redo|go|load|restart)\b/m;
const WORDS = 'This cell ran in a state that was left: what it made is not in the present state.';

export function followPastCells(link) {
  const marked = new WeakSet();
  const asking = new WeakSet();
  link.changed.connect(async (_link, { panel, why, source = '' }) => {
    if (!panel || panel.isDisposed) return;
    if (why === 'kernel') return mark(panel, new Map(), marked);
    const wanted = MOVES.has(why) || (why === 'cell' && (marked.has(panel) || MOVING_LINE.test(source)));
    if (!wanted || asking.has(panel) || !link.isSandbox(panel)) return;
    asking.add(panel);
    try {
      const tree = readTree(await link.ask(panel, 'tree'));
      if (!panel.isDisposed) mark(panel, pastCells(tree), marked);
    } catch {
      // The kernel went away: the next one begins without marks.
    } finally {
      asking.delete(panel);
    }
  });
}

function mark(panel, past, marked) {
  marked.delete(panel);
  for (const cell of panel.content?.widgets ?? []) {
    const isPast = cell.model.type === 'code' && past.has(`${cell.model.id} ${cell.model.executionCount}`);
    if (isPast) marked.add(panel);
    cell.toggleClass('jp-SandboxPast', isPast);
    if (isPast) cell.node.setAttribute('aria-description', WORDS);
    else cell.node.removeAttribute('aria-description');
    const prompt = cell.node.querySelector('.jp-InputPrompt');
    if (prompt) prompt.title = isPast ? WORDS : '';
  }
}

// Shows the output of a cell that another page has started: a tab was closed, or loaded anew, while a cell ran.
// JupyterLab gives output to the page that ran the cell only. The kernel keeps it (notebook/page/kept_output.py).

const TARGET = 'sandbox-kernel.output';
const PATIENCE_MS = 10_000;
const IMPLEMENTATION = 'sandbox-kernel';
const PLACES = 'sandbox-kernel:places';
// Set while a page draws output of a kernel, by the kernel's id. Still there when a page is loaded: that page hung.
const DRAWING = 'sandbox-kernel:drawing:';
const OUTPUTS = ['stream', 'display_data', 'execute_result', 'error'];
const SILENT_MS = 1_000;
const QUICK_MS = 200;
// The cells that show what another page has started: for each notebook a map of request and cell.
export const followedCells = new WeakMap();
const drawing = new Map(); // name -> when output came last
// Cells that this page has run: JupyterLab itself shows what they give.
const ranHere = new WeakSet();

/** @param {import('lab-modules').Shared} shared */
export async function reopenedPlugin(shared) {
  const [{ INotebookTracker, NotebookActions }] = await shared('@jupyterlab/notebook');
  return {
    id: 'sandbox-kernel:reopened',
    description: 'Shows the output of a sandbox cell that went on while its notebook was closed.',
    autoStart: true,
    requires: [INotebookTracker],
    activate: (_app, tracker) => {
      window.addEventListener('pagehide', () => [...drawing.keys()].forEach(drawn));
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
  followedCells.set(panel, followed);
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

// Notes that output is drawn, until the page has drawn it, or is left in good order.
function noteDrawing(kernel) {
  const name = DRAWING + kernel;
  const isNoted = drawing.has(name);
  drawing.set(name, performance.now());
  if (isNoted) return;
  try {
    localStorage.setItem(name, '1');
  } catch {
    // A browser that keeps nothing: what hung the page is drawn again.
  }
  settle(name);
}

// The page has drawn all when no output has come for a while and two frames follow each other quickly.
function settle(name) {
  requestAnimationFrame((before) =>
    requestAnimationFrame((now) => {
      if (!drawing.has(name)) return;
      if (now - before < QUICK_MS && now - drawing.get(name) > SILENT_MS) drawn(name);
      else setTimeout(settle, QUICK_MS, name);
    }),
  );
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
