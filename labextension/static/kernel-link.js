// The line between this page and the Sandbox kernel: requests of our own message type, on the shell channel or, while a cell runs, on control.
//
// Only code of this extension sends them. Output of a sandbox stands in frames, which reach the kernel through the gate
// of their widgets and no other way. sandbox_kernel/notebook/side_panel.py is the side of the kernel.
import { DIALOG_BUTTONS, element, paragraph } from './dom.js';
import { safeText } from './receipt.js';

const KEEPS = 'Cancel keeps the session as it is.';
const IMPLEMENTATION = 'sandbox-kernel';
const WAIT_MILLISECONDS = 1500;

export const WAITING = 'Waiting for the kernel: it answers between cells…';
export const LOST = 'The kernel ended or was restarted before it answered. Look what became of it, and press again.';

let made = null;

// Returns the one link of this page; every plugin that needs it may ask first.
/** @param {import('lab-modules').Shared} shared */
export function kernelLink(shared) {
  made ??= makeLink(shared);
  return made;
}

// The same link for what a user has pressed: `late` is called where the kernel lets them wait.
export function withNotice(link, late) {
  const noticed = async (request) => {
    const timer = setTimeout(late, WAIT_MILLISECONDS);
    try {
      return await request;
    } finally {
      clearTimeout(timer);
    }
  };
  return {
    ask: (...request) => noticed(link.ask(...request)),
    change: (...request) => noticed(link.change(...request)),
    get current() {
      return link.current;
    },
  };
}

/** @param {import('lab-modules').Shared} shared */
async function makeLink(shared) {
  const [{ KernelMessage }, { NotebookActions }, { Signal }, apputils, { Widget }] = await shared('@jupyterlab/services', '@jupyterlab/notebook', '@lumino/signaling', '@jupyterlab/apputils', '@lumino/widgets');
  return new KernelLink(KernelMessage.createMessage, NotebookActions, Signal, { ...apputils, Widget });
}

// Knows which notebooks have a Sandbox kernel. `changed` is emitted with {panel, why, source}: `why` is 'kernel' when it is
// another one, 'current' when another notebook is looked at, 'cell' when a cell (with this source, and these outputs) has ended
// here or in another page, or the action of a request that changed something.
class KernelLink {
  constructor(createMessage, actions, Signal, { Dialog, showDialog, Widget }) {
    this._agrees = async (loses) => {
      const buttons = [Dialog.cancelButton(), Dialog.warnButton({ label: DIALOG_BUTTONS.lose })];
      const body = element('div', { children: [...loses.map((text) => paragraph(text)), paragraph(KEEPS)] });
      return (await showDialog({ title: 'The new session would not have', body: new Widget({ node: body }), buttons, defaultButton: 0 })).button.accept;
    };
    this._createMessage = createMessage;
    this._kernels = new WeakMap();
    this._ran = new WeakMap();
    this._ended = actions.executed;
    this.changed = new Signal(this);
  }

  follow(tracker) {
    if (this._tracker) return;
    this._tracker = tracker;
    const learn = (panel) => {
      panel.sessionContext.kernelChanged.connect(() => this._learn(panel));
      panel.sessionContext.statusChanged.connect((_context, status) => {
        if (status === 'restarting' || status === 'autorestarting') this._learn(panel);
      });
      panel.sessionContext.iopubMessage.connect((_context, message) => this._hear(panel, message));
      this._learn(panel);
    };
    tracker.forEach(learn);
    tracker.widgetAdded.connect((_tracker, panel) => learn(panel));
    tracker.currentChanged.connect(() => this.changed.emit({ panel: tracker.currentWidget, why: 'current' }));
    this._ended.connect((_actions, { notebook, cell }) => {
      const panel = tracker.find((one) => one.content === notebook);
      if (!panel || !this.isSandbox(panel)) return;
      this._ran.set(cell, this._kernels.get(panel));
      // JupyterLab shows 50 outputs: our receipt or error is the last. The kernel bounds how many there are.
      const area = cell.outputArea;
      if (area && area.model.length > area.maxNumberOutputs) area.maxNumberOutputs = area.model.length + 1;
      this.changed.emit({ panel, why: 'cell', source: cell.model?.sharedModel.getSource() ?? '', outputs: area?.model });
    });
  }

  // The current notebook if its kernel is the Sandbox kernel, else null.
  get current() {
    const panel = this._tracker?.currentWidget ?? null;
    return panel && this.isSandbox(panel) ? panel : null;
  }

  isSandbox(panel) {
    const kernel = panel.sessionContext.session?.kernel;
    return Boolean(kernel) && this._kernels.get(panel) === kernel.id;
  }

  // Resolves once this notebook has a Sandbox kernel that answers.
  whenSandbox(panel) {
    return new Promise((resolve) => {
      const look = () => {
        if (!this.isSandbox(panel)) return;
        this.changed.disconnect(look);
        resolve();
      };
      this.changed.connect(look);
      look();
    });
  }

  // Whether this page has run this cell in the kernel that the notebook has now.
  hasRun(panel, cell) {
    return this.isSandbox(panel) && this._ran.get(cell) === this._kernels.get(panel);
  }

  // Sends a request and returns the content of the reply; an Error says why there is none, or what was refused.
  // `atOnce`: on the channel that the kernel answers while a cell runs.
  async ask(panel, action, fields = {}, { atOnce = false } = {}) {
    const kernel = panel.sessionContext.session?.kernel;
    if (!kernel || !this.isSandbox(panel)) throw new Error('This notebook has no running Sandbox kernel.');
    const message = this._createMessage({
      msgType: 'sandbox_request',
      channel: atOnce ? 'control' : 'shell',
      username: kernel.username,
      session: kernel.clientId,
      content: { action, ...fields },
    });
    const sent = atOnce ? kernel.sendControlMessage(message, true, true) : kernel.sendShellMessage(message, true, true);
    const reply = await sent.done.catch(() => {
      throw new Error(LOST);
    });
    const content = reply.content ?? {};
    if (content.status !== 'ok') {
      const error = new Error(typeof content.error === 'string' ? content.error : 'The kernel did not answer.');
      const texts = (value) => (Array.isArray(value) ? value.filter((one) => typeof one === 'string') : []);
      throw Object.assign(error, { conflicts: texts(content.conflicts), loses: texts(content.loses).map(safeText) });
    }
    return content;
  }

  // A request that changes something; everybody who shows the notebook's state is told afterwards, also of a failure.
  async change(panel, action, fields = {}) {
    try {
      return await this.ask(panel, action, fields);
    } catch (error) {
      if (!error.loses?.length || !(await this._agrees(error.loses))) throw error;
      return await this.ask(panel, action, { ...fields, anyway: true });
    } finally {
      this.changed.emit({ panel, why: action });
    }
  }

  // A cell that another page has run may change what this page shows.
  _hear(panel, { header, parent_header: parent, content }) {
    if (header.msg_type !== 'status' || content.execution_state !== 'idle' || parent.msg_type !== 'execute_request') return;
    if (!this.isSandbox(panel) || parent.session === panel.sessionContext.session.kernel.clientId) return;
    this.changed.emit({ panel, why: 'cell', source: '' });
  }

  async _learn(panel) {
    this._kernels.delete(panel);
    const kernel = panel.sessionContext.session?.kernel;
    const info = await kernel?.info.catch(() => null);
    if (kernel && kernel === panel.sessionContext.session?.kernel && info?.implementation === IMPLEMENTATION) {
      this._kernels.set(panel, kernel.id);
    }
    this.changed.emit({ panel, why: 'kernel' });
  }
}
