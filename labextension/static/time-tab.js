// The tab "Time": the tree of a session's states. Enter or a click goes to a state; nothing is lost by it.
import { bar, button, control, diffBlock, element, paragraph, redraw } from './dom.js';
import { readDifference, readTree, readVariables } from './panel-facts.js';

const indent = (depth) => Math.min(depth, 12) * 14;

// A line as in a git graph, through the middle of the dots.
function drawnRail({ column, part }, depth) {
  const made = element('span', { className: 'jp-SandboxPanel-rail', attributes: { 'data-part': part } });
  made.style.left = `${8 + indent(column)}px`;
  if (part === 'branch') made.style.width = `${indent(depth) - indent(column)}px`;
  return made;
}

// How many changes of a state are named below the tree; the rest is counted.
const MOST_NAMED = 12;

export function timeTab(body, { link, askName, run }) {
  let panel = null;
  let tree = { nodes: [], line: [], more: 0 };
  let selected = null;
  let compared = null;
  let against = null; // the state to compare with that the user has chosen
  let held = null; // the variables of the chosen state

  const go = (node) => run(async () => (await link.change(panel, 'go', { state: node.id })).text);
  const nameIt = (title, which = {}) =>
    run(async () => {
      const name = await askName(title);
      return name ? (await link.change(panel, 'name', { name, ...which })).text : '';
    });
  const branch = (node) =>
    run(async () => {
      const name = await askName(`A name for the state that the branch begins at, ${node.label}`);
      if (!name) return '';
      await link.change(panel, 'go', { state: node.id });
      await link.change(panel, 'name', { name });
      return `The next cell begins a branch at ${name}.`;
    });
  const compare = (before, after) =>
    run(async () => {
      const found = readDifference(await link.ask(panel, 'compare', { before, after }));
      if (selected === before || selected === after) compared = found;
      draw();
      return '';
    });

  async function refresh(current) {
    if (current !== panel) selected = against = compared = null;
    panel = current;
    // Whoever had the present state selected gets the new present state when a cell has run.
    const present = tree.nodes.find((node) => node.present)?.id;
    const newest = tree.nodes.reduce((most, { id }) => Math.max(most, id), -1);
    tree = readTree(await link.ask(panel, 'tree'));
    if (tree.nodes.some(({ id }) => id > newest)) compared = null; // a cell has run
    if (selected === present) selected = null;
    if (!tree.nodes.some(({ id }) => id === selected)) selected = tree.nodes.find(({ present }) => present)?.id ?? null;
    draw();
    await look();
  }

  async function look() {
    const node = tree.nodes.find(({ id }) => id === selected);
    if (!node) return;
    const found = await link.ask(panel, 'variables', { state: node.id }).catch(() => ({}));
    if (node.id !== selected) return;
    held = { of: node.id, ...readVariables(found, node.changes) };
    draw();
  }

  function draw() {
    if (tree.nodes.length === 0) {
      redraw(body, paragraph('No session runs. Each cell that you run becomes a state, which you can come back to.'));
      return;
    }
    const items = element('ul', {
      className: 'jp-SandboxPanel-tree',
      attributes: { role: 'tree', 'aria-label': 'states of the session' },
      children: tree.nodes.map(item),
    });
    items.addEventListener('keydown', onKey);
    const buttons = bar(
      button('undo', () => run(async () => (await link.change(panel, 'undo')).text)),
      button('redo', () => run(async () => (await link.change(panel, 'redo')).text)),
      button('name-present', () => nameIt('A name for the present state')),
    );
    const node = tree.nodes.find(({ id }) => id === selected);
    const shown = node ? [details(node), ...(compared ? [difference(compared)] : []), ...(held?.of === selected ? [variables(held)] : [])] : [];
    redraw(body, buttons, ...(tree.line.length > 2 ? [slider()] : []), items, ...shown);
  }

  // A slider over the states of the present line, also those that redo would bring. It selects a state and goes nowhere.
  function slider() {
    const chosen = tree.line.includes(selected) ? selected : tree.nodes.find(({ present }) => present)?.id;
    const made = /** @type {HTMLInputElement} */ (control('slide', 'input', {
      attributes: { type: 'range', min: '0', max: String(tree.line.length - 1), 'aria-label': 'state of the present line', 'aria-valuetext': labelOf(chosen) },
    }));
    made.value = String(tree.line.indexOf(chosen));
    const words = element('code', { text: labelOf(tree.line[Number(made.value)]) });
    const at = () => tree.line[Number(made.value)];
    made.addEventListener('input', () => {
      words.textContent = labelOf(at());
    });
    made.addEventListener('change', () => choose(at(), '[data-control=slide]'));
    return element('div', { className: 'jp-SandboxPanel-slider', children: [made, words] });
  }

  const labelOf = (id) => tree.nodes.find((node) => node.id === id)?.label ?? '';

  function variables({ rows, more }) {
    const row = ({ sign, name, type, shape, size }) =>
      element('tr', { children: [element('td', { text: sign }), element('th', { text: name, attributes: { scope: 'row' } }), element('td', { text: `${type} ${shape}` }), element('td', { text: size })] });
    const head = element('tr', { children: ['', 'variable', 'type, and shape or value', 'size'].map((text) => element('th', { text, attributes: { scope: 'col' } })) });
    const said = !rows ? 'The variables of this state were not looked at.' : rows.length === 0 ? 'It has no variables.' : '';
    const rest = more > 0 ? [paragraph(`and ${more} more`)] : [];
    return element('section', {
      className: 'jp-SandboxPanel-variables',
      attributes: { 'aria-label': 'variables of the chosen state' },
      children: [paragraph('Variables', 'jp-SandboxPanel-title'), ...(said ? [paragraph(said)] : [element('table', { children: [head, ...rows.map(row)] }), ...rest])],
    });
  }

  function item(node) {
    const state = node.present ? 'present' : node.alive ? 'held' : 'gone';
    const words = { present: 'the present state', held: 'held', gone: 'its cells would run again' }[state];
    const made = control('state', 'li', {
      attributes: {
        role: 'treeitem',
        'aria-level': String(node.depth + 1),
        'aria-selected': String(node.id === selected),
        'aria-label': [node.name, node.label, ...node.changes.slice(0, 6), words].filter(Boolean).join(', '),
        tabindex: node.id === selected ? '0' : '-1',
        'data-state': state,
        'data-node': String(node.id),
        ...(node.present ? { 'aria-current': 'true' } : {}),
        ...(node.past ? { 'data-past': 'true' } : {}),
      },
      children: [
        ...node.rails.map((rail) => drawnRail(rail, node.depth)),
        element('span', { className: 'jp-SandboxPanel-dot' }),
        ...(node.name ? [element('strong', { text: node.name })] : []),
        element('code', { text: node.label }),
        element('span', { className: 'jp-SandboxPanel-changed', text: node.changes.slice(0, 6).join(' ') }),
      ],
    });
    made.style.paddingLeft = `${4 + indent(node.depth)}px`;
    made.addEventListener('click', () => choose(node.id));
    made.addEventListener('dblclick', () => go(node));
    return made;
  }

  function choose(id, focused = '[role=treeitem][tabindex="0"]') {
    if (id === selected) return;
    selected = id;
    compared = null;
    draw();
    body.querySelector(focused)?.focus();
    look();
  }

  function onKey(event) {
    const at = tree.nodes.findIndex(({ id }) => id === selected);
    const steps = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: tree.nodes.length - 1 };
    if (event.key in steps) {
      const next = tree.nodes[Math.max(0, Math.min(tree.nodes.length - 1, steps[event.key]))];
      choose(next.id);
    } else if (event.key === 'ArrowLeft') {
      const parent = tree.nodes[at]?.parent;
      if (tree.nodes.some(({ id }) => id === parent)) choose(parent);
    } else if (event.key === 'ArrowRight') {
      const child = tree.nodes.findLast(({ parent }) => parent === selected);
      if (child) choose(child.id);
    } else if (event.key === 'Enter') {
      go(tree.nodes[at]);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  function details(node) {
    const others = tree.nodes.filter(({ id }) => id !== node.id);
    const choice = control('compare-with', 'select', {
      attributes: { 'aria-label': 'state to compare with' },
      children: others.map(({ id, name, label, present }) => {
        const option = element('option', { text: [present ? 'present:' : '', name, label].filter(Boolean).join(' '), attributes: { value: String(id) } });
        option.selected = others.some((one) => one.id === against) ? id === against : node.present ? id === node.parent : present;
        return option;
      }),
    });
    choice.addEventListener('change', () => {
      against = Number(choice.value);
    });
    const rest = node.changes.length - MOST_NAMED;
    const named = [...node.changes.slice(0, MOST_NAMED), ...(rest > 0 ? [`and ${rest} more`] : [])];
    const changed = named.length > 0 ? `changed: ${named.join(', ')}` : 'changed no variable and no file';
    const held = [node.alive ? 'held in memory' : 'not held: its cells would run again', node.memory && `${node.memory} of its own`];
    const actions = [
      ...(node.present ? [] : [button('go-there', () => go(node)), button('branch', () => branch(node))]),
      button('name-state', () => nameIt(`A name for the state ${node.label}`, { state: node.id })),
      ...(others.length > 0 ? [button('compare', () => compare(...pair(node.id, Number(choice.value)))), choice] : []),
    ];
    return element('section', {
      className: 'jp-SandboxPanel-node',
      attributes: { 'aria-label': 'the chosen state' },
      children: [
        paragraph(node.name ? `${node.name}: ${node.label}` : node.label, 'jp-SandboxPanel-title'),
        paragraph(changed),
        paragraph(held.filter(Boolean).join(', ')),
        ...node.lacks.map((text) => paragraph(`cannot come back: ${text}`)),
        bar(...actions),
      ],
    });
  }

  // The older state first.
  const pair = (a, b) => (a < b ? [a, b] : [b, a]);

  function difference({ before, after, variables, files, unknown }) {
    const rows = variables.map(({ sign, name, before: old, after: now }) =>
      element('tr', {
        children: [element('td', { text: sign }), element('th', { text: name, attributes: { scope: 'row' } }), element('td', { text: old }), element('td', { text: now })],
      }),
    );
    const head = element('tr', { children: ['', 'variable', 'before', 'after'].map((text) => element('th', { text, attributes: { scope: 'col' } })) });
    const nothing = rows.length === 0 && files.length === 0 && unknown.length === 0;
    return element('section', {
      className: 'jp-SandboxPanel-difference',
      attributes: { 'aria-label': 'difference' },
      children: [
        paragraph(`${labelOf(before)} → ${labelOf(after)}`, 'jp-SandboxPanel-title'),
        ...(nothing ? [paragraph('no difference')] : []),
        ...(rows.length > 0 ? [element('table', { children: [head, ...rows] })] : []),
        ...files.flatMap(({ path, kind, lines }) => [paragraph(`${path}: ${kind}`), ...(lines.length > 0 ? [diffBlock(lines)] : [])]),
        ...unknown.map((text) => paragraph(text)),
      ],
    });
  }

  return { refresh };
}
