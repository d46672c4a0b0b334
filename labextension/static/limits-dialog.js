// The dialog behind the status bar's limits: time, memory, domains, folders, the notebook's own folder.
import { element } from './dom.js';
import { readOverview } from './panel-facts.js';

const FIELDS = [
  { key: 'timeout', label: 'Time for each cell', hint: 'like 500ms, 30s or 2m' },
  { key: 'memory', label: 'Memory', hint: 'like 512M or 2G' },
  { key: 'domains', label: 'Network: domains that cells may reach', hint: 'one in a line, like example.org or example.org:8443; empty: none', many: true },
  { key: 'mounts', label: 'Folders that cells may see', hint: 'one in a line, HOST:GUEST, like data:/data; read-only without :rw at its end', many: true },
];

// Returns the body of the dialog as an element, and `value()`: the limits as they stand in it.
export function limitsForm(limits, problem) {
  const inputs = {};
  const rows = FIELDS.map(({ key, label, hint, many }) => {
    const input = element(many ? 'textarea' : 'input', { attributes: { spellcheck: 'false', ...(many ? { rows: '2' } : { type: 'text' }) } });
    input.value = many ? limits[key].join('\n') : limits[key];
    inputs[key] = input;
    return element('label', { children: [element('span', { text: label }), input, element('small', { text: hint })] });
  });
  const here = element('input', { attributes: { type: 'checkbox' } });
  here.checked = limits.here !== '';
  const words = 'Work on the notebook’s folder; your files stay as they are until you apply changes';
  const row = element('label', { className: 'jp-SandboxDialog-check', children: [here, element('span', { text: words })] });
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

const RESTART = 'Restart, keeping variables';
const RESTART_MEANS =
  'A new session begins under these limits and has the variables of the one before. What cannot be brought along is named. Undo does not reach back behind it.';

// Asks, and begins a new session under the present limits that has the variables of the one before.
export async function restartKeeping({ confirm, link, panel }) {
  if (!(await confirm('Restart, keeping variables?', RESTART_MEANS, 'Restart'))) return '';
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
      buttons: [Dialog.cancelButton(), Dialog.okButton({ label: RESTART, displayType: 'default', caption: RESTART_MEANS }), Dialog.okButton({ label: 'Change' })],
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
