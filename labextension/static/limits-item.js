// The status-bar item that shows the limits of the active cell. limits.js makes its text.
import { limitsInForce, limitsText } from './limits.js';
import { MIME } from './receipt-facts.js';

const IMPLEMENTATION = 'sandbox-kernel';

export async function limitsPlugin(shared) {
  const [{ INotebookTracker }, { IStatusBar }, { Widget }, { Signal }] = await Promise.all(
    ['@jupyterlab/notebook', '@jupyterlab/statusbar', '@lumino/widgets', '@lumino/signaling'].map(shared),
  );
  return {
    id: 'sandbox-kernel:limits',
    description: 'Shows the limits of the active sandbox cell in the status bar.',
    autoStart: true,
    requires: [INotebookTracker],
    optional: [IStatusBar],
    activate: (_app, tracker, statusBar) => {
      if (!statusBar) return;
      const item = new Widget({ node: document.createElement('span') });
      item.addClass('jp-SandboxLimits');
      const changed = new Signal(item);
      const refresh = () => {
        show(item.node, currentLimits(tracker));
        changed.emit();
      };
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

// Calls `refresh` when the active cell, its text, its outputs or the kernel changes.
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
  const watchKernel = (panel) => {
    panel.sessionContext.kernelChanged.connect(() => learnKernel(panel, refresh));
    learnKernel(panel, refresh);
  };
  tracker.activeCellChanged.connect(follow);
  tracker.currentChanged.connect(follow);
  tracker.forEach(watchKernel);
  tracker.widgetAdded.connect((_tracker, panel) => watchKernel(panel));
  follow();
}

const sandboxKernels = new WeakSet();

async function learnKernel(panel, refresh) {
  sandboxKernels.delete(panel);
  const kernel = panel.sessionContext.session?.kernel;
  const info = await kernel?.info;
  if (kernel && kernel === panel.sessionContext.session?.kernel && info.implementation === IMPLEMENTATION) {
    sandboxKernels.add(panel);
  }
  refresh();
}

function currentLimits(tracker) {
  const panel = tracker.currentWidget;
  const active = tracker.activeCell?.model;
  if (!panel?.model || active?.type !== 'code') return null;
  const cells = [...panel.model.cells].filter((cell) => cell.type === 'code').map(readCell);
  return limitsInForce(active.sharedModel.getSource(), cells, sandboxKernels.has(panel));
}

function readCell(cell) {
  const receipts = [];
  for (let index = 0; index < cell.outputs.length; index++) {
    const data = cell.outputs.get(index).data;
    if (MIME in data) receipts.push(data[MIME]);
  }
  return { source: cell.sharedModel.getSource(), executionCount: cell.executionCount, receipts };
}

function show(node, limits) {
  const { brief, full } = limits ? limitsText(limits) : { brief: '', full: '' };
  node.textContent = brief;
  node.title = full;
  node.setAttribute('role', 'note');
  node.setAttribute('aria-label', full);
}
