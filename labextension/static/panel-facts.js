// Turns replies of the kernel into the values that the side panel shows. Pure functions; they create no elements.
//
// Names, values and lines come from inside the sandbox: types are checked, invisible characters are replaced, and texts
// and lists are cut. sandbox_kernel/notebook/side_panel.py writes the replies.
import { bytesText, secondsText } from './dom.js';
import { safeText, safeTextOf, wordsForIsolation } from './receipt.js';

const MOST_LINES = 2000;
// The share of a limit from which a running cell is offered more.
const NEAR = 0.75;
const MOST_LINE = 2000;
const MOST_PATH = 1000;
const MOST_ENTRIES = 500;
// The names of all secrets that are hidden stand in one row.
const MOST_WORDS = 4000;
const INVISIBLE = /[\u0000-\u0008\u000a-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
// The same, all else that is not seen, blanks that are drawn as one or not at all, and the sign that escapes begin with.
const UNSEEN = new RegExp(`[\\\\\\u2800]|\\p{Default_Ignorable_Code_Point}|[^\\S ]|(?<=^| ) | $|${INVISIBLE.source}`, 'gu');
const PICTURE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;

const list = (value) => (Array.isArray(value) ? value.slice(0, MOST_ENTRIES) : []);
const table = (value) => (value !== null && typeof value === 'object' && !Array.isArray(value) ? value : {});
const number = (value) => (Number.isSafeInteger(value) && value >= 0 ? value : null);

// Returns the lines of a unified diff, each with its kind: add, remove, place, same, or remark for a file that is not shown as text.
export function diffLines(text) {
  const lines = typeof text === 'string' ? text.split('\n', MOST_LINES + 1) : [];
  const shown = lines.slice(0, MOST_LINES).map((line) => {
    const head = /^(?:\+\+\+|---) /.test(line);
    const kind = head || line.startsWith('@@') ? 'place' : { '+': 'add', '-': 'remove', '#': 'remark' }[line[0]] ?? 'same';
    return { kind, text: line.slice(kind === 'remark' ? 2 : 0, MOST_LINE).replace(INVISIBLE, '\ufffd') };
  });
  if (shown.at(-1)?.text === '') shown.pop();
  if (lines.length > MOST_LINES) shown.push({ kind: 'place', text: '… and more lines' });
  return shown;
}

export function pictureUrl(value) {
  return typeof value === 'string' && PICTURE.test(value) ? value : '';
}

// Returns a path to look at. What cannot be seen is written as an escape, so that two files never look the same.
export function pathText(path) {
  const escape = (sign) => `\\x${sign.codePointAt(0).toString(16).padStart(2, '0')}`;
  return safeTextOf(MOST_PATH, path.replace(UNSEEN, escape));
}

// Returns a text that is the same for the same list of changes.
export function listed(data) {
  return JSON.stringify([data.here, data.changes, data.more, data.digest]);
}

// Returns {here, changes: [{path, shown, kind, size, named}], more}; `path` is as it is, for requests only.
export function readChanges(data) {
  const changes = list(data.changes).map(table).filter(({ path }) => typeof path === 'string');
  return {
    here: safeText(data.here),
    more: number(data.more) ?? 0,
    changes: changes.map(({ path, kind, type, size, named }) => ({
      path,
      shown: type === 'directory' ? `${pathText(path)}/` : pathText(path),
      kind: safeText(kind),
      size: kind !== 'deleted' && type === 'file' && number(size) !== null ? bytesText(size) : '',
      named: named === true,
    })),
  };
}

// Returns the states as [{id, parent, label, …}], a parent always before its children, with the depth of its branch.
export function readTree(data) {
  const nodes = list(data.nodes).map(table).filter((node) => number(node.id) !== null).map(readNode);
  const known = new Map(nodes.map((node) => [node.id, node]));
  const below = new Map();
  for (const node of nodes) {
    const parent = known.has(node.parent) && node.parent !== node.id ? node.parent : null;
    below.set(parent, [...(below.get(parent) ?? []), node]);
  }
  const line = presentLine(nodes);
  const ordered = [];
  const pending = (below.get(null) ?? []).map((node) => [node, 0]).reverse();
  while (pending.length > 0) {
    const [node, depth] = pending.pop();
    ordered.push({ ...node, depth, past: !line.has(node.id) });
    // The line of the present goes straight down; branches that were left stand beside it, before it goes on.
    const children = (below.get(node.id) ?? []).sort((a, b) => Number(line.has(a.id)) - Number(line.has(b.id)) || a.id - b.id);
    const straight = children.at(-1);
    if (straight) pending.push([straight, depth]);
    for (const child of children.slice(0, -1).reverse()) pending.push([child, depth + 1]);
  }
  return { nodes: withRails(ordered), line: sliderLine(nodes), more: number(data.more) ?? 0 };
}

// Adds to each state the lines of its row: [{column, part}], where `part` is 'down' from its dot, 'up' to it, 'through' the
// row, or 'branch': from this column to the dot of a state that begins a branch.
function withRails(nodes) {
  const rails = nodes.map(() => []);
  const rows = new Map(nodes.map(({ id }, row) => [id, row]));
  nodes.forEach(({ parent, depth }, row) => {
    const above = rows.get(parent) ?? row;
    if (above >= row) return;
    const column = nodes[above].depth;
    if (depth !== column) {
      rails[row].push({ column, part: 'branch' });
      return;
    }
    rails[above].push({ column, part: 'down' });
    for (let between = above + 1; between < row; between++) rails[between].push({ column, part: 'through' });
    rails[row].push({ column, part: 'up' });
  });
  return nodes.map((node, row) => ({ ...node, rails: rails[row] }));
}

function presentLine(nodes) {
  const known = new Map(nodes.map((node) => [node.id, node]));
  const line = new Set();
  let at = nodes.find(({ present }) => present)?.id;
  while (known.has(at) && !line.has(at)) {
    line.add(at);
    at = known.get(at).parent;
  }
  return line;
}

// The ids of the states that lead to the present one, and of those that a redo leads to, oldest first.
function sliderLine(nodes) {
  const line = [...presentLine(nodes)].reverse();
  for (let next; (next = nodes.findLast(({ parent, id }) => parent === line.at(-1) && !line.includes(id))); ) line.push(next.id);
  return line;
}

// Returns the variables of a state: [{name, type, shape, size, sign}]; `sign` says what the state's cell did to it. Null: not known.
export function readVariables(data, changes) {
  if (data.known !== true) return null;
  const signs = new Map(changes.map((text) => [text.slice(1), text[0]]));
  const rows = list(data.variables).filter(Array.isArray).map(([name, type, words, size]) => ({
    name: safeText(name),
    type: safeText(type),
    shape: safeText(words),
    size: number(size) === null ? '' : bytesText(size),
    sign: signs.get(safeText(name)) ?? '',
  }));
  return { rows, more: number(data.more) ?? 0 };
}

function readNode(node) {
  const code = typeof node.code === 'string' ? node.code : '';
  const first = code.split('\n', 40).map((line) => line.trim()).find((line) => line && line !== '#') ?? '';
  const names = (key) => list(node[key]).map(safeText).filter(Boolean);
  return {
    id: node.id,
    parent: number(node.parent),
    number: number(node.number),
    cell: typeof node.cell === 'string' ? node.cell : '',
    name: safeText(node.name),
    label: code ? `[${number(node.number) ?? '?'}] ${safeText(first)}` : 'the beginning',
    changes: [
      ...names('added').map((name) => `+${name}`),
      ...names('changed').map((name) => `~${name}`),
      ...names('removed').map((name) => `−${name}`),
      ...names('unsure').map((name) => `?${name}`),
      ...list(node.files).filter(Array.isArray).map(([path, kind]) => `${safeText(path)} ${safeText(kind)}`),
    ],
    lacks: [...names('lacks'), ...[safeText(node.unknown)].filter(Boolean)],
    memory: number(node.memory_bytes) === null ? '' : bytesText(node.memory_bytes),
    alive: node.alive === true,
    present: node.present === true,
  };
}

// Returns the ids of the cells of the notebook whose last run belongs to a state that was left.
export function pastCells(tree) {
  const runs = tree.nodes.filter(({ cell }) => cell);
  return new Map(runs.filter(({ past }) => past).map(({ cell, number: count }) => [`${cell} ${count}`, true]));
}

// Returns how far a running cell is: {cell, elapsed, timeout, used, limit, more}, in seconds and bytes; `limit` 0: not known.
// `more`: what a press gives where a limit is near: {what: 'time' | 'memory', text}; null: nothing, or none is near.
export function readProgress(content) {
  const amount = (value) => (Number.isFinite(value) && value > 0 ? value : 0);
  const [elapsed, timeout, used, limit] = ['elapsed_s', 'timeout_s', 'memory_bytes', 'memory_limit_bytes'].map((name) => amount(content[name]));
  const [seconds, bytes] = [amount(content.more_s), amount(content.more_bytes)];
  let more = null;
  if (seconds && elapsed >= NEAR * timeout) more = { what: 'time', text: `The time is nearly over. Give ${secondsText(seconds)} more` };
  if (bytes && used >= NEAR * limit && limit) more = { what: 'memory', text: `The memory is nearly used up. Give ${bytesText(bytes)} more` };
  return { cell: typeof content.cell === 'string' ? content.cell : '', elapsed, timeout, used, limit, more };
}

// Returns {before, after}: the ids of the states around that run of a cell; null if the session has none of it.
export function stateOfCell(tree, cell, count) {
  const state = tree.nodes.find((node) => node.cell === cell && node.number === count);
  return state ? { before: state.parent, after: state.id } : null;
}

// Returns [{sign, name, before, after}], files with the lines of their diff, and what could not be compared.
export function readDifference(data) {
  const row = (sign) => (entry) => {
    const [name, ...values] = list(entry).map(safeText);
    return { sign, name, before: sign === '+' ? '' : values[0], after: sign === '−' ? '' : values.at(-1) };
  };
  return {
    before: number(data.before),
    after: number(data.after),
    variables: [
      ...list(data.added).map(row('+')),
      ...list(data.changed).map(row('~')),
      ...list(data.removed).map(row('−')),
    ],
    files: list(data.files).filter(Array.isArray).map(([path, kind, patch]) => ({
      path: safeText(path),
      kind: safeText(kind),
      lines: diffLines(patch),
    })),
    unknown: [...list(data.unknown).map(safeText), ...list(data.unsure).map((name) => `${safeText(name)} cannot be compared`)],
  };
}

// Returns what cells may touch: [[name, words], …], and the five options of the dialog.
export function readOverview(data) {
  const limits = table(data.limits);
  const text = (value) => (typeof value === 'string' ? value : '');
  const texts = (value) => list(value).filter((one) => typeof one === 'string');
  return {
    session: safeText(data.session),
    line: safeText(data.line),
    rows: list(data.rows).filter(Array.isArray).map(([name, words]) => [safeText(name), safeTextOf(MOST_WORDS, words)]),
    limits: {
      timeout: text(limits.timeout),
      memory: text(limits.memory),
      domains: texts(limits.domains),
      mounts: texts(limits.mounts),
      here: text(limits.here),
    },
  };
}

// Returns the lines of a measured report: [{area, name, state, evidence}], the kind of isolation, and its weaknesses.
export function readReport(data) {
  const report = table(data.report);
  return {
    isolation: wordsForIsolation(safeText(report.isolation)),
    lines: list(report.lines).map(table).map((line) => ({
      area: safeText(line.area),
      name: safeText(line.name),
      state: line.enforced === true ? 'enforced' : line.enforced === false && line.absent !== true ? 'not enforced' : line.absent === true ? 'absent here' : 'not testable here',
      evidence: safeText(line.evidence),
    })),
    weaknesses: list(report.weaknesses).map(safeText),
  };
}
