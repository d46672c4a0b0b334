// Finds the limits that the active cell would run under, from the notebook's text and receipts. Pure functions.
//
// The cell's own options come first, then what the kernel said. Otherwise the latest of: a `%sandbox --timeout …` line that was run, and the
// receipt of a cell without that option. If there is neither, the text says that defaults apply, without numbers.
import { DEFAULT_LANGUAGE, parseLanguage } from './languages.js';
import { cellMagic, lineMagics } from './magic.js';
import { readLimits } from './receipt-facts.js';
import { megabytesText, parseMegabytes, parseSeconds, secondsText } from './units.js';

const LIMITS = [
  { key: 'timeout', option: '--timeout', label: 'time', parse: parseSeconds, text: secondsText },
  { key: 'memory', option: '--memory', label: 'memory', parse: parseMegabytes, text: megabytesText },
];

// `active`: the cell's text. `cells`: [{source, executionCount, receipts}] of the notebook. `everyCell`: whether the
// kernel also sandboxes cells without the magic. `told`: {timeout, memory} as the kernel said, in seconds and megabytes.
// Returns null if the cell does not run in a sandbox.
export function limitsInForce(active, cells, everyCell, told = {}) {
  const magic = cellMagic(active);
  if (!magic && !everyCell) return null;
  const own = magic ?? { language: null, options: new Map() };
  const said = cells.filter((cell) => cell.executionCount !== null).sort((a, b) => b.executionCount - a.executionCount);
  return {
    language: languageInForce(own.language, said),
    // A cell in another language may have another default of memory.
    limits: LIMITS.map((limit) => ({ label: limit.label, ...limitInForce(limit, own.options, said, own.language === null ? told : {}) })),
    grants: ['--allow-net', '--mount', '--policy'].flatMap((option) =>
      (own.options.get(option) ?? []).map((value) => `${option} ${value}`),
    ),
  };
}

function languageInForce(own, said) {
  if (own !== null) return parseLanguage(own) ?? `unknown language ${own}`;
  for (const cell of said) {
    const { lines, reset } = defaultLines(cell);
    const named = lines.map(({ language }) => language && parseLanguage(language)).findLast(Boolean);
    if (named) return named;
    if (reset) break;
  }
  return DEFAULT_LANGUAGE;
}

function limitInForce(limit, options, said, told) {
  const own = options.get(limit.option)?.at(-1);
  if (own !== undefined) return readOption(limit, own, 'set by this cell');
  if (typeof told[limit.key] === 'number') return { text: limit.text(told[limit.key]), origin: 'in force in this notebook' };
  for (const cell of said) {
    const ran = cell.receipts.map((data) => readLimits(data)).filter((run) => !run.apart);
    const known = ran.map((run) => run[limit.key]).findLast((value) => value !== null);
    if (known !== undefined && !cellMagic(cell.source)?.options.has(limit.option)) {
      return { text: limit.text(known), origin: 'as in the last run' };
    }
    const { lines, reset } = defaultLines(cell);
    const set = lines.findLast(({ options: named }) => named.has(limit.option));
    if (set) return readOption(limit, set.options.get(limit.option).at(-1), 'set by %sandbox');
    if (reset) break;
  }
  return { text: null, origin: 'the default' };
}

// Returns the %sandbox lines of a cell from the last `%sandbox reset` on, and whether there is such a reset.
function defaultLines(cell) {
  const lines = lineMagics(cell.source);
  const last = lines.findLastIndex(({ language }) => language === 'reset');
  return { lines: lines.slice(Math.max(last, 0)), reset: last >= 0 };
}

function readOption(limit, value, origin) {
  const parsed = limit.parse(value);
  return { text: parsed === null ? `${value || 'nothing'}?` : limit.text(parsed), origin };
}

// Returns a short text for the status bar and a long one for the tooltip and screen readers.
export function limitsText({ language, limits, grants }, changeable = false) {
  const known = limits.filter(({ text }) => text !== null).map(({ text }) => text);
  const brief = ['Sandbox', language, ...(known.length > 0 ? known : ['default limits']), ...grants].join(' · ');
  const lines = limits.map(({ label, text, origin }) => `${label}: ${text === null ? origin : `${text}, ${origin}`}`);
  const allowed = grants.length > 0 ? `allowed: ${grants.join(', ')}` : 'allowed: nothing beyond the notebook’s policy';
  return { brief, full: [`This cell runs in a sandbox (${language})`, ...lines, allowed, ...(changeable ? ['press to change'] : [])].join('\n') };
}
