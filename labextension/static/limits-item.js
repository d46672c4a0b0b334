// The status-bar item that shows the limits of the active cell. limits.js makes its text. In a notebook of the Sandbox
// kernel it is a button, which opens the dialog to change them.
import { control } from './controls.js';
import { kernelLink } from './kernel-link.js';
import { limitsInForce, limitsText } from './limits.js';
import { readOverview } from './panel-facts.js';
import { MIME } from './receipt-facts.js';
import { parseMegabytes, parseSeconds } from './units.js';

export async function limitsPlugin(shared) {
  const [{ INotebookTracker }, { IStatusBar }, { Widget }, { Signal }] = await Promise.all(
    ['@jupyterlab/notebook', '@jupyterlab/statusbar', '@lumino/widgets', '@lumino/signaling'].map(shared),
  );
  const link = await kernelLink(shared);
  return {
    id: 'sandbox-kernel:limits',
    description: 'Shows the limits of the active sandbox cell in the status bar.',
    autoStart: true,
    requires: [INotebookTracker],
    optional: [IStatusBar],
    activate: (app, tracker, statusBar) => {
      if (!statusBar) return;
      const item = new Widget({ node: control('limits', 'span') });
      item.addClass('jp-SandboxLimits');
      const changed = new Signal(item);
      const known = new WeakMap();
      const refresh = () => {
        show(item.node, currentLimits(tracker, link, known), link.current !== null);
        changed.emit();
      };
      const change = () => link.current && app.commands.execute('sandbox-kernel:limits');
      item.node.addEventListener('click', change);
      item.node.addEventListener('keydown', (event) => {
        if (event.key !== 'Enter' && event.key !== ' ') return;
        event.preventDefault();
        change();
      });
      link.follow(tracker);
      followKernel(link, known, refresh);
      statusBar.registerStatusItem('sandbox-kernel:limits', {
        item,
        align: 'middle',
        rank: 10,
        isActive: () => item.node.textContent !== '',
        activeStateChanged: changed,
      });
      followActiveCell(tracker, refresh);
    },
  };
}

// Calls `refresh` when the active cell, its text or its outputs change.
function followActiveCell(tracker, refresh) {
  let followed = null;
  const follow = () => {
    const model = tracker.activeCell?.model ?? null;
    if (model !== followed) {
      followed?.contentChanged.disconnect(refresh);
      model?.contentChanged.connect(refresh);
      followed = model;
    }
    refresh();
  };
  tracker.activeCellChanged.connect(follow);
  tracker.currentChanged.connect(follow);
  follow();
}

// Asks the kernel for the limits in force after cells and changes, one request at a time.
function followKernel(link, known, refresh) {
  const asking = new WeakSet();
  link.changed.connect(async (_link, { panel, why }) => {
    if (why === 'kernel') known.delete(panel);
    refresh();
    if (!['kernel', 'cell', 'limits', 'restart'].includes(why) || asking.has(panel) || !link.isSandbox(panel)) return;
    asking.add(panel);
    try {
      const { limits } = readOverview(await link.ask(panel, 'overview'));
      known.set(panel, { timeout: parseSeconds(limits.timeout), memory: parseMegabytes(limits.memory) });
      refresh();
    } catch {
      // The kernel went away; the text of the cells is what is left to go by.
    } finally {
      asking.delete(panel);
    }
  });
}

function currentLimits(tracker, link, known) {
  const panel = tracker.currentWidget;
  const active = tracker.activeCell?.model;
  if (!panel?.model || active?.type !== 'code') return null;
  const cells = [...panel.model.cells].filter((cell) => cell.type === 'code').map(readCell);
  return limitsInForce(active.sharedModel.getSource(), cells, link.isSandbox(panel), known.get(panel));
}

function readCell(cell) {
  const receipts = [];
  for (let index = 0; index < cell.outputs.length; index++) {
    const data = cell.outputs.get(index).data;
    if (MIME in data) receipts.push(data[MIME]);
  }
  return { source: cell.sharedModel.getSource(), executionCount: cell.executionCount, receipts };
}

function show(node, limits, changeable) {
  const { brief, full } = limits ? limitsText(limits, changeable) : { brief: '', full: '' };
  node.textContent = brief;
  node.title = full;
  node.setAttribute('role', changeable ? 'button' : 'note');
  node.setAttribute('aria-label', full);
  node.classList.toggle('jp-mod-clickable', changeable);
  if (changeable) node.tabIndex = 0;
  else node.removeAttribute('tabindex');
}
