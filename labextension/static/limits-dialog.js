// The dialog behind the status bar's limits: time, memory, domains, folders, the notebook's own folder.
import { control, CONTROLS, DIALOG_BUTTONS } from './controls.js';
import { element } from './dom.js';
import { readOverview } from './panel-facts.js';

const FIELDS = [
  { key: 'timeout', hint: 'like 500ms, 30s or 2m' },
  { key: 'memory', hint: 'like 512M or 2G' },
  { key: 'domains', hint: 'one in a line, like example.org or example.org:8443; empty: none', many: true },
  { key: 'mounts', hint: 'one in a line, HOST:GUEST, like data:/data; read-only without :rw at its end', many: true },
];

// Returns the body of the dialog as an element, and `value()`: the limits as they stand in it.
export function limitsForm(limits, problem) {
  const inputs = {};
  const rows = FIELDS.map(({ key, hint, many }) => {
    const input = control(key, many ? 'textarea' : 'input', { text: '', attributes: { spellcheck: 'false', ...(many ? { rows: '2' } : { type: 'text' }) } });
    input.value = many ? limits[key].join('\n') : limits[key];
    inputs[key] = input;
    return element('label', { children: [element('span', { text: CONTROLS[key] }), input, element('small', { text: hint })] });
  });
  const here = control('here', 'input', { text: '', attributes: { type: 'checkbox' } });
  here.checked = limits.here !== '';
  const row = element('label', { className: 'jp-SandboxDialog-check', children: [here, element('span', { text: CONTROLS.here })] });
  const trouble = element('p', { className: 'jp-SandboxDialog-problem', text: problem, attributes: { role: 'alert' } });
  const node = element('div', { className: 'jp-SandboxDialog', children: [trouble, ...rows, row] });
  trouble.hidden = !problem;
  const lines = (text) => text.split('\n').map((line) => line.trim()).filter(Boolean);
  const value = () => ({
    timeout: inputs.timeout.value.trim(),
    memory: inputs.memory.value.trim(),
    domains: lines(inputs.domains.value),
    mounts: lines(inputs.mounts.value),
    here: here.checked ? limits.here || '.' : '',
  });
  return { node, value };
}

const RESTART = DIALOG_BUTTONS['restart-with'];
const RESTART_MEANS =
  'A new session begins under these limits and has the variables of the one before. What cannot be brought along is named. Undo does not reach back behind it.';

// Asks, and begins a new session under the present limits that has the variables of the one before.
export async function restartKeeping({ confirm, link, panel }) {
  if (!(await confirm('Restart, keeping variables?', RESTART_MEANS, DIALOG_BUTTONS.restart))) return '';
  return (await link.change(panel, 'restart')).text;
}

// What the user did not touch stays as it is: a default may differ from language to language.
function changedFields(before, value) {
  return Object.fromEntries(Object.entries(value).filter(([key, now]) => JSON.stringify(now) !== JSON.stringify(before[key])));
}

// Shows the dialog until it is cancelled or the kernel has taken the limits; returns what the kernel said, or ''.
// What cannot be changed is said in the dialog, which keeps what was typed. `here`: the notebook's folder is ticked.
export async function editLimits({ Dialog, showDialog, Widget, link, panel, here = false }) {
  const { limits: before } = readOverview(await link.ask(panel, 'overview'));
  let limits = here ? { ...before, here: before.here || '.' } : before;
  for (let problem = ''; ; ) {
    const form = limitsForm(limits, problem);
    const body = new Widget({ node: form.node });
    body.getValue = form.value;
    const { button, value } = await showDialog({
      title: 'Limits and access of this notebook',
      body,
      focusNodeSelector: 'input',
      buttons: [Dialog.cancelButton(), Dialog.okButton({ label: RESTART, className: 'jp-SandboxDialog-second', caption: RESTART_MEANS }), Dialog.okButton({ label: DIALOG_BUTTONS.change })],
    });
    if (!button.accept) return '';
    const changed = changedFields(before, value);
    if (button.label !== RESTART && Object.keys(changed).length === 0) return 'Nothing was changed.';
    try {
      const { text } = await link.change(panel, button.label === RESTART ? 'restart' : 'limits', changed);
      const { line } = readOverview(await link.ask(panel, 'overview'));
      return [text, `In force until the kernel ends: ${line}`].filter(Boolean).join('\n');
    } catch (error) {
      problem = error.message;
      limits = value;
    }
  }
}
