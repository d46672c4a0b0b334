// Runs ipywidgets inside a frame. The package widgetsnbextension has a widget manager for the classic notebook in one
// file; this file, evaluated before it, gives it the few objects of that notebook that it uses. Its comms end at
// postMessage: the page and the kernel carry them on.
(() => {
  const tell = (message) => parent.postMessage(message, '*');
  const VIEW = Math.random().toString(36).slice(2);
  const IDLE_MILLISECONDS = 4000;
  const STATIC_TYPES = ['image/png', 'image/jpeg', 'image/svg+xml', 'text/html', 'text/plain'];
  let sent = 0;
  const waiting = new Map();
  const comms = new Map();
  const targets = new Map();
  const handled = new Set(); // messages that widgets have not taken yet
  const nothing = () => {};

  class Comm {
    constructor(target, id) {
      this.comm_id = id;
      this.target_name = target;
      this.kernel = kernel;
    }
    on_msg(use) { this.message = use; }
    on_close(use) { this.closed = use; }
    send(data, callbacks, metadata, buffers = []) {
      const id = `${VIEW}-${(sent += 1)}`;
      // The model sends its next change when the kernel has handled this one.
      const idle = () => {
        if (!waiting.delete(id)) return;
        callbacks?.iopub?.status?.({ content: { execution_state: 'idle' } });
      };
      waiting.set(id, idle);
      setTimeout(idle, IDLE_MILLISECONDS);
      const parts = buffers.map((part) => (ArrayBuffer.isView(part) ? part.buffer.slice(part.byteOffset, part.byteOffset + part.byteLength) : part));
      tell({ type: 'comm', msg: { msg_type: 'comm_msg', msg_id: id, comm_id: this.comm_id, data }, buffers: parts });
      return id;
    }
    close() { comms.delete(this.comm_id); }
  }
  // Asks for the state of all widgets; the page sends it by itself, so the answer is empty.
  class ControlComm extends Comm {
    send() {
      queueMicrotask(() => this.message?.({ content: { data: { method: 'update_states', states: {}, buffer_paths: [] } }, buffers: [] }));
      return '';
    }
  }

  const kernel = {
    is_connected: () => true,
    comm_info: (_target, use) => use({ content: { comms: {} } }),
    set_callbacks_for_msg: nothing,
    output_callback_overrides_push: nothing,
    output_callback_overrides_pop: nothing,
  };
  kernel.comm_manager = {
    kernel,
    register_target: (name, use) => targets.set(name, use),
    register_comm: (comm) => comms.set(comm.comm_id, comm),
    new_comm: (target, _data, _callbacks, _metadata, id, _buffers) =>
      target === 'jupyter.widget.control' ? new ControlComm(target, id) : Promise.reject(new Error('a page opens no comms')),
  };

  let renderView = null;
  const actions = { register: nothing, get: () => ({ handler: nothing }) };
  const keyboard_manager = { register_events: nothing, actions };
  const area = { create_output_subarea: () => [document.createElement('div')], keyboard_manager, handle_output: nothing, handle_clear_output: nothing };
  const place = (model, root) => renderView.call(area, { model_id: model }, {}, { append: ([node]) => root.append(node) });

  const text = (value) => (Array.isArray(value) ? value.join('') : String(value ?? ''));
  const PRE_STYLE = 'margin:0;padding-left:8px;font:13px/17px var(--jp-code-font-family, monospace)'; // as in JupyterLab
  const ERROR_STYLE = ';padding-top:2px;background:color-mix(in srgb, #f00 15%, transparent)';
  // The sixteen colours of a terminal, as JupyterLab has them.
  const TERMINAL = '3e424d e75c58 00a250 ddb62b 208ffb d160c4 60c6c8 c5c1b4 282c36 b22b31 007427 b27d12 0065ca a03196 258f8f a1a6b2'.split(' ');
  const numbered = (number) => {
    if (number < 16) return `#${TERMINAL[number]}`;
    if (number > 231) return `rgb(${Array(3).fill(8 + 10 * (number - 232)).join()})`;
    return `rgb(${[36, 6, 1].map((step) => [0, 95, 135, 175, 215, 255][Math.floor((number - 16) / step) % 6]).join()})`;
  };
  const STYLES = { 1: { fontWeight: 'bold' }, 3: { fontStyle: 'italic' }, 4: { textDecoration: 'underline' }, 22: { fontWeight: '' } };
  const coloured = (sequence, style) => {
    const codes = sequence.split(';').map(Number);
    while (codes.length) {
      const code = codes.shift();
      const part = code >= 40 && code < 50 || code >= 100 ? 'background' : 'color';
      if (code === 0) for (const name of Object.keys(style)) delete style[name];
      else if (code in STYLES) Object.assign(style, STYLES[code]);
      else if (code === 39 || code === 49) delete style[part];
      else if (code === 38 || code === 48) {
        const kind = codes.shift();
        if (kind === 5) style[part] = numbered(codes.shift() & 255);
        else if (kind === 2) style[part] = `rgb(${codes.splice(0, 3).join()})`;
      } else if (code >= 30 && code <= 47) style[part] = numbered(code % 10 + (style.fontWeight && part === 'color' ? 8 : 0));
      else if (code >= 90 && code <= 107) style[part] = numbered(code % 10 + 8);
    }
  };
  // What a terminal shows: colours, and a line that was written over.
  const pre = (value, isError = false) => {
    const made = document.createElement('pre');
    made.style.cssText = PRE_STYLE + (isError ? ERROR_STYLE : '');
    const style = {};
    const lines = value.replace(/\r+\n/g, '\n').replace(/^.*\r(?=[^\r\n])/gm, '');
    lines.split(/\x1b\[([0-9;]*)m/).forEach((piece, at) => {
      if (at % 2) coloured(piece, style);
      else if (piece) {
        const part = made.appendChild(document.createElement('span'));
        part.textContent = piece;
        Object.assign(part.style, style);
      }
    });
    return made;
  };
  // Code that a figure inside an Output widget needs: asked of the page once, and evaluated when it comes.
  const libraries = new Map();
  const library = (name) => {
    if (!libraries.has(name)) {
      window.sandboxModule = null; // the widgets are loaded by now; a library that is none names itself
      let use;
      const come = new Promise((called) => { use = called; });
      libraries.set(name, Object.assign(come, { use }));
      tell({ type: 'needs', sha256: name });
    }
    return libraries.get(name);
  };
  let current = null;
  const fill = (root, markup) => {
    root.innerHTML = markup;
    for (const script of root.querySelectorAll('script:not([src])')) {
      current = script; // figures ask for it to find their place
      try {
        (0, eval)(script.textContent);
      } catch (error) {
        console.error(error);
      }
    }
    current = null;
  };
  const drawn = (data, root) => {
    const widget = data['application/vnd.jupyter.widget-view+json'];
    if (widget) {
      const newer = Object.entries(widget.modules ?? {}).filter(([name]) => !modules.has(name));
      if (newer.length === 0) {
        place(widget.model_id, root);
        return;
      }
      // Code that is newer than this frame: the models wait for it, and then take what they were told meanwhile.
      const made = root.appendChild(document.createElement('div'));
      Promise.all(newer.map(([, sha256]) => library(sha256)))
        .then(makeAgain)
        .then(() => until(() => handled.size === 0))
        .catch(nothing)
        .then(() => made.parentNode !== root || place(widget.model_id, made));
      return;
    }
    const frame = data['application/vnd.sandbox-kernel.frame+json'];
    if (frame) {
      const made = root.appendChild(document.createElement('div'));
      made.append(pre(text(data['text/plain'])));
      const isCleared = () => made.parentNode !== root;
      Promise.all((frame.libraries ?? []).map(library))
        .then(() => until(() => made.isConnected || isCleared())) // figures look for their place in the document
        .then(() => isCleared() || fill(made, frame.html))
        .catch(nothing);
      return;
    }
    const type = STATIC_TYPES.find((name) => name in data);
    if (type === 'image/png' || type === 'image/jpeg') {
      root.append(Object.assign(new Image(), { src: `data:${type};base64,${text(data[type]).trim()}` }));
    } else if (type === 'text/html' || type === 'image/svg+xml') {
      fill(root.appendChild(Object.assign(document.createElement('div'), { className: 'jp-RenderedHTMLCommon' })), text(data[type]));
    } else if (type) root.append(pre(text(data[type])));
  };

  class OutputArea {
    constructor({ selector }) {
      this.root = selector;
      this.outputs = [];
      this.element = { trigger: nothing };
    }
    register_mime_type(_type, use) { renderView = use; }
    handle_output({ header, content }) {
      this.fromJSON([{ output_type: header.msg_type, ...content }]);
    }
    handle_clear_output() { this.clear_output(); }
    clear_output() {
      this.outputs = [];
      this.root.replaceChildren();
    }
    fromJSON(outputs) {
      for (const output of outputs) {
        this.outputs.push(output);
        if (output.output_type === 'stream') this.root.append(pre(text(output.text), output.name === 'stderr'));
        else if (output.output_type === 'error') this.root.append(pre(text(output.traceback?.join('\n') ?? output.evalue), true));
        else drawn(output.data ?? {}, this.root);
      }
    }
    toJSON() { return this.outputs; }
  }

  const events = { on: nothing, trigger: nothing };
  const notebook = { metadata: {}, events, keyboard_manager, kernel, get_cells: () => [], container: { on: nothing } };
  window.Jupyter = { version: '7.0.0', notebook, menubar: { actions }, notification_area: { widget: () => ({}) } };
  const modules = new Map(Object.entries({
    module: { uri: 'https://widgets.invalid/extension.js' }, // nothing is loaded from there
    'base/js/namespace': window.Jupyter,
    'base/js/events': events,
    'notebook/js/outputarea': { OutputArea },
    'services/kernels/comm': { Comm },
  }));
  const OURS = 'jupyter-js-widgets';
  const named = (name) => (/^@jupyter-widgets\/(?:base|controls|output)$/.test(name) ? OURS : name);
  // Files made by webpack ask where they were loaded from, and fail when nothing answers. They load nothing from there.
  const FROM_NOWHERE = { tagName: 'SCRIPT', src: 'data:text/javascript,' };
  Object.defineProperty(document, 'currentScript', { get: () => current ?? FROM_NOWHERE });
  // AMD, for files that are evaluated one after the other; each names itself before it is evaluated.
  window.sandboxModule = OURS;
  const define = (...given) => {
    const factory = given.pop();
    const needs = Array.isArray(given.at(-1)) ? given.at(-1) : [];
    const exports = {};
    const found = needs.map((name) => (name === 'exports' ? exports : modules.get(named(name))));
    const made = typeof factory === 'function' ? factory(...found) : factory;
    modules.set(window.sandboxModule, made ?? exports);
  };
  define.amd = {};
  Object.defineProperty(window, 'define', { get: () => (window.sandboxModule ? define : undefined) });
  window.require = window.requirejs = (names, use, refuse) => {
    const missing = () => names.find((name) => !modules.has(named(name)));
    until(() => !missing())
      .catch(() => refuse?.(new Error(`${missing()} is not in this frame`)))
      .then(() => missing() || use(...names.map((name) => modules.get(named(name)))));
  };
  window.requirejs.config = nothing;

  const header = ({ msg_type, parent_id }) => ({ header: { msg_type }, parent_header: { msg_id: parent_id } });
  const receive = ({ msg, buffers = [] }) => {
    const { msg_type, comm_id, target_name, data, metadata } = msg;
    const message = { content: { comm_id, target_name, data }, metadata, buffers: buffers.map((part) => new DataView(part)), ...header(msg) };
    if (msg_type === 'comm_open') {
      if (comms.has(comm_id)) return;
      const comm = Object.assign(new Comm(target_name, comm_id), { opened: message });
      comms.set(comm_id, comm);
      targets.get(target_name)?.(comm, message);
    } else if (msg_type === 'comm_msg') {
      const work = manager().then((found) => found.get_model(comm_id)).then(() => comms.get(comm_id)?.message?.(message)).catch(nothing);
      handled.add(work);
      work.then(() => handled.delete(work));
    } else if (msg_type === 'comm_close') {
      comms.get(comm_id)?.closed?.(message);
      comms.delete(comm_id);
    }
  };
  const until = async (isDone, tries = 200) => {
    while (!isDone()) {
      if ((tries -= 1) < 0) throw new Error('it did not come');
      await new Promise((use) => setTimeout(use, 50));
    }
  };
  const manager = async () => {
    await until(() => kernel.widget_manager);
    return kernel.widget_manager;
  };
  // Models that came long before their code are errors: they are made again, and take the state that they have now.
  const makeAgain = async () => {
    for (const comm of [...comms.values()].filter(({ opened }) => modules.has(opened?.content.data.state?._model_module))) {
      if ((await (await manager()).get_model(comm.comm_id)).get('_view_name') !== 'ErrorWidgetView') continue;
      await targets.get(comm.target_name)(comm, comm.opened);
      await new Promise((use) => comm.send({ method: 'request_state' }, { iopub: { status: use } }));
    }
  };
  // A widget without height, such as an empty Output, would not be noticed.
  const tellWhenDrawn = (root) => {
    new MutationObserver((_list, observer) => {
      if (!root.querySelector('.lm-Widget, .jupyter-widgets')) return;
      observer.disconnect();
      root.style.minHeight = '4px';
    }).observe(root, { childList: true, subtree: true });
  };
  addEventListener('message', async ({ source, data }) => {
    if (source !== parent || typeof data !== 'object' || data === null) return;
    if (data.type === 'comm') receive(data);
    else if (data.type === 'library') {
      window.sandboxModule = null;
      libraries.get(data.sha256)?.use();
    }
    else if (data.type === 'done') waiting.get(data.id)?.();
    else if (data.type === 'view') {
      const root = document.body.appendChild(document.createElement('div')); // before any wait: views keep their order
      const found = await manager();
      await until(() => found.has_model(data.model_id));
      place(data.model_id, root);
      tellWhenDrawn(root);
    }
  });

  // Called by the first frame markup, after all libraries were evaluated.
  window.startWidgets = () => {
    const menu = document.createElement('ul');
    menu.hidden = true;
    const item = menu.appendChild(document.createElement('li'));
    item.appendChild(document.createElement('a')).id = 'help_menu';
    document.body.append(menu);
    const others = new Set(document.querySelectorAll('style'));
    modules.get(OURS).load_ipython_extension().then(() => {
      // The manager adds its styles late; in JupyterLab they stand before those of other widgets, which may change them.
      document.head.prepend(...[...document.querySelectorAll('style')].filter((sheet) => !others.has(sheet)));
      tell({ type: 'widgets' });
    });
  };
})();
