// Parses the %%sandbox line of a cell, as far as the page needs it.
//
// The kernel's parser checks the line and reports errors. This one runs while the user types, so it ignores what it
// does not understand.

// Only this many characters are searched for the magic line, so that typing in a large cell stays fast.
export const MOST_MAGIC = 64 * 1024;

const CELL_MAGIC = /^%%sandbox(?=\s|$)[^\S\n]*(.*)$/;
const LINE_MAGIC = /^[^\S\n]*%sandbox[^\S\n]+(.*)$/gm;
const FLAGS = new Set(['--fresh', '--check', '--quiet', '--keep', '--clear']);
// Empty lines and comments for nbval may come before the magic, as in the kernel's parser.
const BEFORE_MAGIC = /^(?:[^\S\n]*(?:(?:#|\/\/|--|;;)[^\S\n]*(?:NBVAL|PYTEST_VALIDATE)_[A-Z_]+[^\S\n]*)?\n)*/;

function firstLine(source) {
  return source.replace(BEFORE_MAGIC, '').split(/\r?\n/, 1)[0];
}

// Returns the position where the program of a cell starts, after the magic line.
export function magicEnd(source) {
  const start = BEFORE_MAGIC.exec(source)[0].length;
  const end = source.indexOf('\n', start);
  return end < 0 ? source.length : end + 1;
}

// Returns {language: string | null, options: Map<string, string[]>} for a cell that starts with %%sandbox, else null.
export function cellMagic(source) {
  const match = CELL_MAGIC.exec(firstLine(source));
  return match && readOptions(match[1]);
}

// Returns the same for every `%sandbox --option …` line of a cell; these lines set the notebook's defaults.
export function lineMagics(source) {
  return [...source.matchAll(LINE_MAGIC)].map((match) => readOptions(match[1]));
}

function readOptions(text) {
  const words = splitWords(text);
  const options = new Map();
  let language = null;
  const put = (name, value) => options.set(name, [...(options.get(name) ?? []), value]);
  while (words.length > 0) {
    const word = words.shift();
    const assigned = /^(--[\w-]+)=(.*)$/s.exec(word);
    if (assigned) put(assigned[1], assigned[2]);
    else if (FLAGS.has(word)) put(word, '');
    else if (/^-./.test(word)) put(word, words.shift() ?? '');
    else language ??= word;
  }
  return { language, options };
}

// Splits text into words as a shell does; an unclosed quote extends to the end of the line.
function splitWords(text) {
  const words = [];
  const pattern = /\s+|'([^']*)'?|"((?:\\.|[^"\\])*)"?|\\(.)|([^\s'"\\]+)|\\$/gy;
  let word = null;
  for (const [whole, single, double, escaped, plain] of text.matchAll(pattern)) {
    if (/^\s/.test(whole)) {
      if (word !== null) words.push(word);
      word = null;
    } else {
      word = (word ?? '') + (single ?? double?.replace(/\\(["\\])/g, '$1') ?? escaped ?? plain ?? '');
    }
  }
  if (word !== null) words.push(word);
  return words;
}
