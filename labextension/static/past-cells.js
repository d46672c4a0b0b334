// Marks the cells of a notebook whose last run belongs to a state that was left: their variables are not there now.
import { pastCells, readTree } from './panel-facts.js';

const MOVES = new Set(['undo', 'redo', 'checkout']);
// Lines that move the session; the kernel is asked after cells with one of them, and while something is marked.
const MOVING_LINE = /^[^\S\n]*%sandbox[^\S\n]+(?:undo|redo|checkout|load|restart)\b/m;
const WORDS = 'This cell ran in a state that was left: what it made is not in the present state.';

export function followPastCells(link) {
  const marked = new WeakSet();
  const asking = new WeakSet();
  link.changed.connect(async (_link, { panel, why, source = '' }) => {
    if (!panel || panel.isDisposed) return;
    if (why === 'kernel') return mark(panel, new Map(), marked);
    const wanted = MOVES.has(why) || (why === 'cell' && (marked.has(panel) || MOVING_LINE.test(source)));
    if (!wanted || asking.has(panel) || !link.isSandbox(panel)) return;
    asking.add(panel);
    try {
      const tree = readTree(await link.ask(panel, 'tree'));
      if (!panel.isDisposed) mark(panel, pastCells(tree), marked);
    } catch {
      // The kernel went away: the next one begins without marks.
    } finally {
      asking.delete(panel);
    }
  });
}

function mark(panel, past, marked) {
  marked.delete(panel);
  for (const cell of panel.content?.widgets ?? []) {
    const isPast = cell.model.type === 'code' && past.has(`${cell.model.id} ${cell.model.executionCount}`);
    if (isPast) marked.add(panel);
    cell.toggleClass('jp-SandboxPast', isPast);
    if (isPast) cell.node.setAttribute('aria-description', WORDS);
    else cell.node.removeAttribute('aria-description');
    const prompt = cell.node.querySelector('.jp-InputPrompt');
    if (prompt) prompt.title = isPast ? WORDS : '';
  }
}
