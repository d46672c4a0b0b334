// Every control that this extension draws, by its name, with the words on it. One table, so that a test can press them all
// (tests/browser/panel/test_every_control.py). Commands are in commands.js.
import { element } from './dom.js';
import { pressWhenSteady } from './steady.js';

// Words that are not the same each time, like the name of a file, are given where the control is made.
export const CONTROLS = {
  // The side panel: tabs, and what stands in each of them.
  'tab-changes': 'Files and changes',
  'tab-time': 'Time',
  'tab-access': 'Access',
  'work-here': 'Work on the notebook’s folder…',
  'apply-all': 'Apply all',
  'discard-all': 'Discard all',
  change: '',
  apply: 'Apply',
  discard: 'Discard',
  undo: 'Undo',
  redo: 'Redo',
  'name-present': 'Name the present state…',
  state: '',
  'go-there': 'Go there',
  branch: 'Branch from here…',
  'name-state': 'Name it…',
  compare: 'Compare with',
  'compare-with': '',
  'change-limits': 'Change…',
  restart: 'Restart, keeping variables…',
  report: 'Measure what holds (report)',
  'long-text': '',
  // The dialog of limits.
  timeout: 'Time for each cell',
  memory: 'Memory',
  domains: 'Network: domains that cells may reach',
  mounts: 'Folders that cells may see',
  here: 'Work on the notebook’s folder; your files stay as they are until you apply changes',
  // The status bar, and what stands below a cell.
  limits: '',
  'allow-once': 'Allow once',
  'allow-session': 'Allow for this session',
  'allow-folder': 'Work on the whole folder',
  'allow-never': 'Never',
  'allow-notebook': 'Allow for this notebook',
  'allow-nothing': 'Not now',
  receipt: '',
  copy: 'Copy',
  'stop-frame': 'Stop it',
  'save-file': 'Save it',
};

// Those that stand beside outputs and do something: an output could bring them under the pointer. What is copied is our own text.
const BESIDE_OUTPUTS = new Set(['allow-once', 'allow-session', 'allow-folder', 'allow-never', 'allow-notebook', 'allow-nothing', 'stop-frame', 'save-file']);

// Buttons of dialogs, which JupyterLab draws.
export const DIALOG_BUTTONS = {
  change: 'Change',
  'restart-with': 'Restart, keeping variables',
  restart: 'Restart',
  drop: 'Drop',
  name: 'Name it',
};

export function control(name, tag, { text = CONTROLS[name], attributes = {}, ...rest } = {}) {
  if (!Object.hasOwn(CONTROLS, name)) throw new Error(`no control is called ${name}`);
  const made = element(tag, { text, attributes: { 'data-control': name, ...attributes }, ...rest });
  if (BESIDE_OUTPUTS.has(name)) pressWhenSteady(made);
  return made;
}
