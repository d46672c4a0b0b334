// What frames need from elsewhere: messages of widgets, and libraries.

// Connects widgets in frames with their sessions: one comm to the kernel of each notebook, opened by the page. A frame
// sees only messages of the gate (the session) that made it, and can send only to that gate.
const TARGET = 'sandbox-kernel.frames';
const ENDED = 'This widget belongs to a session that has ended: run its cell again';
const NOT_KEPT = 'This widget is not shown: its cell was taken back or its session has ended (then run the cell again), or it is larger than 12 MB';
const TOO_OFTEN = 'This output was taken back too often to be drawn anew each time: run its cell again';
const MOST_REDRAWN = 10;
const REDRAWN_MILLISECONDS = 60000;
// A frame can send faster than its session takes: what waits for an answer is bounded, so that cells do not wait behind it.
const MOST_UNANSWERED = 30;
const MOST_UNSENT = 240;
const ANSWER_MILLISECONDS = 2000; // some messages get none

// The times at which the outputs of a session were drawn anew, with now; null when that was often enough.
export function mayRedraw(times, now) {
  const recent = times.filter((time) => now - time < REDRAWN_MILLISECONDS);
  return recent.length < MOST_REDRAWN ? [...recent, now] : null;
}

export class FrameComms {
  constructor(tracker) {
    this.tracker = tracker;
    this.lines = new Map(); // kernel connection -> its comm, and the views that use it
  }

  // A message of a view's frame: it is ready, or a widget has changed.
  receive(view, data) {
    // Once for each time that the frame is loaded: the whole state is sent for it.
    if (data.type === 'widgets' && !view.line) this.attach(view);
    else if (data.type === 'comm') this.send(view, data);
  }

  kernelOf(view) {
    const panel = this.tracker.find(({ node }) => node.contains(view.node)) ?? this.tracker.find(({ content }) => shows(content, view));
    return panel?.sessionContext.session?.kernel ?? null;
  }

  line(kernel) {
    const known = this.lines.get(kernel);
    if (known && !known.comm.isDisposed) return known;
    const comm = kernel.createComm(TARGET);
    const line = { comm, views: new Set(), epochs: new Map(), redrawn: new Map() };
    Object.assign(comm, { onMsg: ({ content, buffers = [] }) => this.answer(line, content.data, buffers) });
    comm.open();
    this.lines.set(kernel, line);
    const forget = () => {
      if (kernel.status !== 'restarting' && kernel.status !== 'autorestarting' && kernel.status !== 'dead') return;
      line.views.forEach((view) => view.tell(ENDED));
      this.lines.delete(kernel);
      kernel.statusChanged.disconnect(forget);
    };
    kernel.statusChanged.connect(forget);
    return line;
  }

  attach(view) {
    const kernel = this.kernelOf(view);
    if (!kernel) {
      view.tell(ENDED);
      return;
    }
    view.line = this.line(kernel);
    view.line.views.add(view);
    view.isDrawn = false;
    post(view.line.comm, { type: 'attach', gate: view.facts.widget.gate, model: view.facts.widget.model });
  }

  detach(view) {
    view.line?.views.delete(view);
    view.line = null;
    view.unsent = [];
    view.unanswered = [];
  }

  send(view, { msg, buffers }) {
    const parts = Array.isArray(buffers) ? buffers.filter((part) => part instanceof ArrayBuffer) : [];
    if (!view.line || view.unsent.length >= MOST_UNSENT) return;
    const { gate } = view.facts.widget;
    view.unsent.push([{ type: 'comm', gate, epoch: view.line.epochs.get(gate) ?? 0, msg }, parts]);
    this.sendNext(view);
  }

  sendNext(view) {
    while (view.line && view.unsent.length > 0 && view.unanswered.length < MOST_UNANSWERED) {
      const [data, parts] = view.unsent.shift();
      const one = { id: data.msg?.msg_id };
      view.unanswered.push(one);
      setTimeout(() => this.answered(view, one), ANSWER_MILLISECONDS);
      post(view.line.comm, data, parts);
    }
  }

  answered(view, one) {
    const at = view.unanswered.indexOf(one);
    if (at < 0) return;
    view.unanswered.splice(at, 1);
    this.sendNext(view);
  }

  answer(line, data, buffers) {
    const views = [...line.views].filter(({ facts }) => facts.widget.gate === data.gate);
    if (data.type === 'done') {
      for (const view of views) {
        view.say({ type: 'done', id: data.id });
        this.answered(view, view.unanswered.find(({ id }) => id === data.id));
        if (data.printed) view.print(data.printed);
      }
      return;
    }
    if (data.type === 'again') {
      const times = mayRedraw(line.redrawn.get(data.gate) ?? [], performance.now());
      if (times) line.redrawn.set(data.gate, times);
      views.forEach((view) => (times ? view.reload() : view.tell(TOO_OFTEN)));
      return;
    }
    line.epochs.set(data.gate, data.epoch);
    const messages = split(data, buffers);
    if (data.type === 'state') {
      for (const view of views.filter(({ facts, isDrawn }) => !isDrawn && facts.widget.model === data.model)) {
        view.isDrawn = true;
        if (data.closed === true) this.vanish(view);
        else if (messages.length === 0) view.tell(NOT_KEPT);
        messages.forEach((message) => view.say(message));
        if (messages.length > 0) view.say({ type: 'view', model_id: data.model });
      }
    } else {
      // A view that waits for its state gets the newest then.
      for (const view of views.filter(({ isDrawn }) => isDrawn)) messages.forEach((message) => view.say(message));
      this.followOwn(views, messages);
    }
  }

  // The widget of a view was closed, or the session went back to where it was open.
  followOwn(views, messages) {
    for (const { msg } of messages) {
      for (const view of views.filter(({ facts }) => facts.widget.model === msg.comm_id)) {
        if (msg.msg_type === 'comm_open') view.appear();
        else if (msg.msg_type === 'comm_close' && view.isDrawn) this.attach(view); // the answer says who has closed it
      }
    }
  }

  // A view without a place still hears of its widget.
  vanish(view) {
    const { line } = view;
    view.vanish();
    view.line = line;
    line.views.add(view);
  }
}

// Whether a view lies in another view of an output of this notebook ("Create New View for Output").
function shows(notebook, { widget }) {
  for (let at = widget; at; at = at.parent) {
    if (at.model && notebook.widgets.some(({ model }) => model.outputs === at.model)) return true;
  }
  return false;
}

// Sends without waiting: the kernel sends no status for these messages, because the page would draw it at each move of a
// slider. JupyterLab keeps what waits for a status, so that is let go at once.
function post(comm, data, parts = []) {
  comm.send(data, undefined, parts).dispose();
}

// Gives each message its own buffers.
export function split({ messages = [], parts = [] }, buffers) {
  let used = 0;
  return messages.map((msg, index) => {
    const own = buffers.slice(used, (used += parts[index] ?? 0)).map((part) => asArrayBuffer(part));
    return { type: 'comm', msg, buffers: own };
  });
}

function asArrayBuffer(part) {
  return ArrayBuffer.isView(part) ? part.buffer.slice(part.byteOffset, part.byteOffset + part.byteLength) : part;
}

// Libraries of frames, by the SHA-256 of their source: JavaScript that several frames use. The page never runs it.
export const LIBRARY = 'application/vnd.sandbox-kernel.library+json';

// A notebook that was never run may hold thousands, small and packed for megabytes. So one is unpacked when a frame waits for it,
// one after the other with pauses, and the oldest go.
const MOST_CHARACTERS = 32 << 20;
const MOST_PACKED = 12000000;
const MOST_FOUND = 128 << 20;
const MOST_OFFERED = 64 << 20;
const MOST_OF_ONE_NAME = 3;
const found = new Map(); // name -> source
const offered = new Map(); // name -> packed sources that are said to be it, in base64
const waiting = new Map(); // name -> [{ use, isWanted }]
const fetching = new Set();
let last = Promise.resolve();

// Fetches a packed source from the server; set by the plugin. A saved notebook names its libraries, and the server has them.
let fetchPacked = null;

export function setFetch(fetchFrom) {
  fetchPacked = fetchFrom;
}

// In an output the packed source stands once, in the frame that shows it to pages without this extension.
const BEFORE = '&quot;gzip&quot;: &quot;';
const AFTER = '&quot;';
const MOST_TRIES = 10;
const TRY_MILLISECONDS = 1400;

const isName = (name) => typeof name === 'string' && /^[0-9a-f]{64}$/.test(name);
const pause = (milliseconds) => new Promise((use) => setTimeout(use, milliseconds));

// The packed source in an output; null if there is none. Searched for without a regular expression, which takes a tenth
// of a second for megabytes.
export function packedLibrary(data) {
  const html = Array.isArray(data['text/html']) ? data['text/html'].join('') : data['text/html'];
  if (typeof html !== 'string') return null;
  const from = html.indexOf(BEFORE) + BEFORE.length;
  const packed = html.slice(from, html.indexOf(AFTER, from));
  return from > BEFORE.length && packed.length <= MOST_PACKED && /^[A-Za-z0-9+/=]+$/.test(packed) ? packed : null;
}

// JupyterLab cleans the HTML of every output to look for headings, which takes it longer for a library than to draw a
// figure. A single frame, as a library is, has none, and nothing of it is left by the cleaner: the answer is known.
export function isOnlyFrame(html) {
  const end = '"></iframe>';
  return typeof html === 'string' && html.startsWith('<iframe sandbox="allow-scripts" ') && html.endsWith(end) && html.indexOf('<', 1) === html.length - end.length + 2;
}

export function skipFrames(sanitizer) {
  const clean = sanitizer.sanitize.bind(sanitizer);
  sanitizer.sanitize = (html, options) => (isOnlyFrame(html) ? '' : clean(html, options));
}

function asBytes(base64) {
  return /** @type {any} */ (Uint8Array).fromBase64?.(base64) ?? Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
}

// The source with this name; null where these bytes are another one, or none.
async function unpacked(name, bytes) {
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip')).getReader();
  const parts = [];
  for (let size = 0; ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    size += value.length;
    if (size > MOST_CHARACTERS) {
      await reader.cancel();
      return null;
    }
  }
  const source = await new Blob(parts).arrayBuffer();
  // Where the page is not secure there is no digest; the name is then believed. Libraries run only in frames.
  const digest = globalThis.crypto?.subtle && new Uint8Array(await crypto.subtle.digest('SHA-256', source));
  const isIt = !digest || [...digest].map((byte) => byte.toString(16).padStart(2, '0')).join('') === name;
  return isIt ? new TextDecoder().decode(source) : null;
}

// A library in an output of a notebook.
export function keepLibrary(data) {
  const packed = packedLibrary(data);
  if (packed) offer(data[LIBRARY]?.sha256, packed);
}

// A library that the kernel tells of beside the outputs.
export function hearLibrary({ sha256, gzip }) {
  if (typeof gzip === 'string' && gzip.length <= MOST_PACKED) offer(sha256, gzip);
}

function offer(name, packed) {
  const known = offered.get(name) ?? [];
  if (!isName(name) || found.has(name) || known.includes(packed)) return;
  offered.set(name, [...known.slice(1 - MOST_OF_ONE_NAME), packed]);
  dropOldest(offered, MOST_OFFERED, (all) => all.reduce((sum, { length }) => sum + length, 0));
  if (waiting.has(name)) unpackSoon(name);
}

function dropOldest(map, most, sizeOf) {
  let size = [...map.values()].reduce((sum, one) => sum + sizeOf(one), 0);
  for (const [name, one] of map) {
    if (size <= most) return;
    map.delete(name);
    size -= sizeOf(one);
  }
}

function unpackSoon(name) {
  last = last.then(() => unpackOffered(name)).catch((error) => console.error(error));
}

async function unpackOffered(name) {
  if (!waiting.get(name)?.some(({ isWanted }) => isWanted())) return;
  const begun = performance.now();
  for (let packed; waiting.has(name) && (packed = offered.get(name)?.[0]); ) {
    const isIt = await keep(name, () => asBytes(packed));
    if (!isIt) offered.set(name, (offered.get(name) ?? []).filter((other) => other !== packed));
  }
  if (waiting.has(name)) fetchSoon(name);
  await pause(performance.now() - begun);
}

// Whether the source with this name was in these bytes; who waits for it has it then.
async function keep(name, bytes) {
  const source = await Promise.resolve(name).then(() => unpacked(name, bytes())).catch(() => null);
  if (source === null) return false;
  found.set(name, source);
  dropOldest(found, MOST_FOUND, ({ length }) => length);
  for (const { use } of waiting.get(name) ?? []) use(source);
  waiting.delete(name);
  return true;
}

// The server may still be making it.
async function fetchLibrary(name) {
  for (let tries = 0; tries < MOST_TRIES && !found.has(name); tries++) {
    const bytes = await fetchPacked(name);
    if (bytes && bytes.byteLength <= MOST_PACKED) return keep(name, () => new Uint8Array(bytes));
    await pause(TRY_MILLISECONDS);
  }
}

function fetchSoon(name) {
  if (!fetchPacked || fetching.has(name)) return;
  fetching.add(name);
  fetchLibrary(name)
    .catch((error) => console.error(error))
    .finally(() => fetching.delete(name));
}

// Calls `use` with the source as soon as it is known, if `isWanted()` still. Calls `missing` when nobody had it after a while.
export function withLibrary(name, use, missing, isWanted = () => true) {
  if (found.has(name)) {
    use(found.get(name));
    return;
  }
  const one = { use, isWanted };
  waiting.set(name, [...(waiting.get(name) ?? []).filter((other) => other.isWanted()), one]);
  if (offered.get(name)?.length) unpackSoon(name);
  else fetchSoon(name);
  setTimeout(() => waiting.get(name)?.includes(one) && missing(name), 15000);
}
