// What stands beside a cell that runs for long: its time and memory against their limits, and Stop. It is no output, so a
// program's own outputs stay as the program wrote them, and nothing of it is saved. It goes when the cell has ended.
// The kernel decides when it appears (`PROGRESS_AFTER_S` in `notebook/execution.py`); this file only draws.
import { button, bytesText, element, secondsText, wait } from './dom.js';
import { kernelLink } from './kernel-link.js';
import { readProgress } from './panel-facts.js';
import { followedCells } from './past-outputs.js';

const KIND = 'sandbox_progress';
const ENDED = ['restarting', 'autorestarting', 'terminating', 'dead'];
// The share of the limit from which the memory is drawn as a warning.
const NEARLY_FULL = 0.85;

/** @param {import('lab-modules').Shared} shared */
export async function progressPlugin(shared) {
  const [{ INotebookTracker }] = await shared('@jupyterlab/notebook');
  const link = await kernelLink(shared);
  return {
    id: 'sandbox-kernel:progress',
    description: 'Shows time, memory and Stop beside a sandbox cell that runs for long.',
    autoStart: true,
    requires: [INotebookTracker],
    activate: (_app, tracker) => {
      link.follow(tracker);
      tracker.forEach((panel) => follow(panel, link));
      tracker.widgetAdded.connect((_tracker, panel) => follow(panel, link));
    },
  };
}

// Also for %%sandbox cells of an ordinary Python kernel, which sends the same messages.
function follow(panel, link) {
  const context = panel.sessionContext;
  const shown = new Map(); // request -> what is shown of it
  const end = (request) => {
    shown.get(request)?.node.remove();
    shown.delete(request);
  };
  const endAll = () => [...shown.keys()].forEach(end);
  context.kernelChanged.connect(endAll);
  context.statusChanged.connect((_context, status) => ENDED.includes(status) && endAll());
  context.iopubMessage.connect((_context, { header, parent_header: parent, content }) => {
    const request = parent.msg_id;
    if (header.msg_type === 'status' && content.execution_state === 'idle') end(request);
    if (header.msg_type !== KIND) return;
    const progress = readProgress(content);
    const cell = panel.content.widgets.find(({ model }) => model.id === progress.cell) ?? followedCells.get(panel)?.get(request)?.view;
    if (!cell) return;
    const give = (what) => link.ask(panel, 'more', { cell: progress.cell, name: what }, { atOnce: true });
    if (!shown.has(request)) shown.set(request, runProgress(() => context.session?.kernel?.interrupt(), give));
    shown.get(request).show(progress);
    // Above the outputs, which grow. JupyterLab may have drawn the cell anew.
    const outputs = cell.node.querySelector(':scope > .jp-Cell-outputWrapper');
    const { node } = shown.get(request);
    if (node.parentNode !== cell.node) cell.node.insertBefore(node, outputs);
  });
}

function runProgress(interrupt, give) {
  const [time, memory] = [meter('time'), meter('memory')];
  const stop = button('stop-cell', () => {
    stop.disabled = true;
    interrupt();
  });
  let offered = null;
  const more = button('more', async () => {
    more.hidden = refused.hidden = true;
    try {
      await give(offered.what);
    } catch (error) {
      refused.textContent = error.message;
      refused.hidden = false;
    }
  });
  const refused = element('span', { attributes: { role: 'alert', hidden: '' } });
  const node = element('div', { className: 'jp-SandboxRun', attributes: { role: 'group', 'aria-label': 'running cell' }, children: [stop, more, refused, time.node, memory.node] });
  const show = ({ elapsed, timeout, used, limit, more: near }) => {
    more.hidden = near === null;
    // A new offer cannot be pressed before it has stood still.
    if (near && near.what !== offered?.what) wait(more);
    offered = near;
    if (near) more.textContent = near.text;
    time.show(elapsed, timeout, `${Math.floor(elapsed)} s of ${secondsText(timeout)}`);
    memory.node.hidden = !limit;
    if (limit) memory.show(used, limit, `${bytesText(Math.min(used, limit))} of ${bytesText(limit)}`);
  };
  return { node, show };
}

function meter(name) {
  const bar = element('progress', { attributes: { 'aria-label': name } });
  const words = element('span');
  const node = element('span', { className: 'jp-SandboxRun-meter', children: [bar, words] });
  const show = (value, most, text) => {
    [bar.max, bar.value, words.textContent] = [most, Math.min(value, most), text];
    node.dataset.full = String(name === 'memory' && value / most >= NEARLY_FULL);
  };
  return { node, show };
}
