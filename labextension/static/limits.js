// The limits that the active cell would run under, as far as the notebook tells. Pure: cells in, words out.
//
// A cell's own options come first. Otherwise the latest that was said: a `%sandbox --timeout …` line that was run, or the
// receipt of a cell that left the limit to the default. Where nothing was said yet, nothing is claimed.
import { DEFAULT_LANGUAGE, parseLanguage } from './languages.js';
import { cellMagic, lineMagics } from './magic.js';
import { readLimits } from './receipt-facts.js';
import { megabytesText, parseMegabytes, parseSeconds, secondsText } from './units.js';

const LIMITS = [
  { key: 'timeout', option: '--timeout', label: 'time', parse: parseSeconds, text: secondsText },
  { key: 'memory', option: '--memory', label: 'memory', parse: parseMegabytes, text: megabytesText },
];

// `active`: the cell's text. `cells`: [{source, executionCount, receipts}] of the notebook. `everyCell`: whether the
// kernel sandboxes cells without the magic too. Null when the cell does not run in a sandbox.
export function limitsInForce(active, cells, everyCell) {
  const magic = cellMagic(active);
  if (!magic && !everyCell) return null;
  const own = magic ?? { language: null, options: new Map() };
  const said = cells.filter((cell) => cell.executionCount !== null).sort((a, b) => b.executionCount - a.executionCount);
  return {
    language: languageInForce(own.language, said),
    limits: LIMITS.map((limit) => ({ label: limit.label, ...limitInForce(limit, own.options, said) })),
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

function limitInForce(limit, options, said) {
  const own = options.get(limit.option)?.at(-1);
  if (own !== undefined) return readOption(limit, own, 'set by this cell');
  for (const cell of said) {
    const ran = cell.receipts.map((data) => readLimits(data)).filter((run) => !run.apart);
    const told = ran.map((run) => run[limit.key]).findLast((value) => value !== null);
    if (told !== undefined && !cellMagic(cell.source)?.options.has(limit.option)) {
      return { text: limit.text(told), origin: 'as in the last run' };
    }
    const { lines, reset } = defaultLines(cell);
    const set = lines.findLast(({ options: named }) => named.has(limit.option));
    if (set) return readOption(limit, set.options.get(limit.option).at(-1), 'set by %sandbox');
    if (reset) break;
  }
  return { text: null, origin: 'the default' };
}

// The %sandbox lines of a cell that still hold, and whether `%sandbox reset` forgot everything before them.
function defaultLines(cell) {
  const lines = lineMagics(cell.source);
  const last = lines.findLastIndex(({ language }) => language === 'reset');
  return { lines: lines.slice(last + 1), reset: last >= 0 };
}

function readOption(limit, value, origin) {
  const parsed = limit.parse(value);
  return { text: parsed === null ? `${value || 'nothing'}?` : limit.text(parsed), origin };
}

// The short form for the bar and the long form for the tooltip and the screen reader.
export function limitsText({ language, limits, grants }) {
  const known = limits.filter(({ text }) => text !== null).map(({ text }) => text);
  const brief = ['Sandbox', language, ...(known.length > 0 ? known : ['default limits']), ...grants].join(' · ');
  const lines = limits.map(({ label, text, origin }) => `${label}: ${text === null ? origin : `${text}, ${origin}`}`);
  const allowed = grants.length > 0 ? `allowed: ${grants.join(', ')}` : 'allowed: nothing beyond the notebook’s policy';
  return { brief, full: [`This cell runs in a sandbox (${language})`, ...lines, allowed].join('\n') };
}
