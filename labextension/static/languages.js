// The languages of %%sandbox and the highlighter that each gets.
//
// Names and aliases are those of sandbox_kernel/model/request.py; tests/labextension/test_languages.py compares the
// two. The MIME types are those of JupyterLab's language registry. JupyterLab has no grammar for Zig; Rust's has most
// of its keywords (fn, pub, const, struct, enum, while, return), its strings and comments.
const HIGHLIGHTER = new Map([
  ['python', 'text/x-ipython'],
  ['javascript', 'text/javascript'],
  ['typescript', 'application/typescript'],
  ['rust', 'text/x-rustsrc'],
  ['c', 'text/x-csrc'],
  ['cpp', 'text/x-c++src'],
  ['zig', 'text/x-rustsrc'],
  ['wasm', 'text/webassembly'],
  ['command', 'text/x-sh'],
  ['ruby', 'text/x-ruby'],
  ['lua', 'text/x-lua'],
  ['go', 'text/x-go'],
  ['r', 'text/x-rsrc'],
  ['perl', 'text/x-perl'],
  ['php', 'text/x-php'],
  ['sql', 'text/x-sqlite'],
]);

const ALIASES = new Map([
  ['py', 'python'], ['python3', 'python'], ['ipython', 'python'],
  ['js', 'javascript'], ['node', 'javascript'], ['nodejs', 'javascript'],
  ['ts', 'typescript'],
  ['rs', 'rust'],
  ['c++', 'cpp'], ['cxx', 'cpp'], ['cc', 'cpp'],
  ['sh', 'command'], ['bash', 'command'], ['shell', 'command'], ['cmd', 'command'],
  ['wat', 'wasm'], ['webassembly', 'wasm'],
  ['rb', 'ruby'], ['pl', 'perl'], ['sqlite', 'sql'], ['sqlite3', 'sql'], ['golang', 'go'],
]);

// The language of a cell that names none.
export const DEFAULT_LANGUAGE = 'python';

// Returns the language for a name or alias, or null for a name that the kernel would refuse.
export function parseLanguage(name) {
  const key = name.trim().toLowerCase();
  const language = ALIASES.get(key) ?? key;
  return HIGHLIGHTER.has(language) ? language : null;
}

// Returns the MIME type by which JupyterLab highlights a language; plain text for an unknown language.
export function highlighterOf(language) {
  return HIGHLIGHTER.get(language) ?? 'text/plain';
}

export function knownNames() {
  return { languages: [...HIGHLIGHTER.keys()], aliases: Object.fromEntries(ALIASES) };
}

// Parses the %%sandbox line of a cell, as far as the page needs it.
//
// The kernel's parser checks the line and reports errors. This one runs while the user types, so it ignores what it
// does not understand.

// Only this many characters are searched for magic lines, and so many are read of one, as in the kernel: otherwise a
// cell of a stranger's notebook would stop the page when it is opened.
export const MOST_MAGIC = 64 * 1024;
const [MOST_LINE, MOST_LINES] = [4096, 50];

const CELL_MAGIC = /^%%sandbox(?=\s|$)[^\S\n]*(.*)$/;
const LINE_MAGIC = /^[^\S\n]*%sandbox[^\S\n]+(.*)$/gm;
const FLAGS = new Set(['--fresh', '--check', '--quiet', '--self-contained', '--keep', '--clear']);
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
  const match = CELL_MAGIC.exec(firstLine(source.slice(0, MOST_MAGIC)));
  return match && readOptions(match[1]);
}

// Returns the same for every `%sandbox --option …` line of a cell; these lines set the notebook's defaults.
export function lineMagics(source) {
  // `go 3` is a command; `go` alone is the language.
  return lineTexts(source).filter((line) => !/^go\s+\d/.test(line)).map(readOptions);
}

function lineTexts(source) {
  const texts = [];
  for (const match of source.slice(0, MOST_MAGIC).matchAll(LINE_MAGIC)) {
    if (texts.push(match[1].slice(0, MOST_LINE)) === MOST_LINES) break;
  }
  return texts;
}

// How many characters both functions read of a cell, at most.
export function magicLength(source) {
  return Math.min(firstLine(source.slice(0, MOST_MAGIC)).length, MOST_LINE) + lineTexts(source).join('').length;
}

function readOptions(text) {
  const words = splitWords(text.slice(0, MOST_LINE));
  const options = new Map();
  let language = null;
  const put = (name, value) => (options.has(name) ? options.get(name).push(value) : options.set(name, [value]));
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

// A CodeMirror language for a cell: the %%sandbox line, and below it a program in another language.
//
// The other language's parser must not see the magic line: in Ruby `%%sandbox` starts a string that extends over the
// whole cell, in C a path like `/data/*` in an option starts a comment. So a small parser splits the cell in two, and
// CodeMirror's mixed-language parsing passes the second part to JupyterLab's parser for that language.

// Returns a function `cellLanguage(support)`, which returns the extension for cells whose program is in the language of
// `support`, a LanguageSupport of JupyterLab's registry; null is plain text.
/** @param {import('lab-modules').Shared} shared */
export async function cellLanguages(shared) {
  const [{ Language, defineLanguageFacet, languageDataProp }, { NodeType, Parser, Tree, parseMixed }, { styleTags, tags }] =
    await shared('@codemirror/language', '@lezer/common', '@lezer/highlight');

  const data = defineLanguageFacet();
  const Cell = NodeType.define({ id: 0, name: 'SandboxCell', top: true, props: [[languageDataProp, data]] });
  const Magic = NodeType.define({ id: 1, name: 'SandboxMagic', props: [styleTags({ SandboxMagic: tags.meta })] });
  const Program = NodeType.define({ id: 2, name: 'SandboxProgram' });

  function cellTree(input) {
    const end = Math.min(magicEnd(input.read(0, Math.min(input.length, MOST_MAGIC))), input.length);
    const parts = [new Tree(Magic, [], [], end), new Tree(Program, [], [], input.length - end)];
    return new Tree(Cell, parts, [0, end], input.length);
  }

  // Splitting a cell is a single step, so the first `advance` completes the parse.
  class CellParse {
    constructor(input) {
      this.input = input;
      this.parsedPos = 0;
      this.stoppedAt = null;
    }

    advance() {
      this.parsedPos = this.input.length;
      return cellTree(this.input);
    }

    stopAt(position) {
      this.stoppedAt = position;
    }
  }

  class CellParser extends Parser {
    constructor(program) {
      super();
      this.mix = parseMixed((node) => (program && node.type === Program ? { parser: program } : null));
    }

    createParse(input, fragments, ranges) {
      return this.mix(new CellParse(input), input, fragments, ranges);
    }
  }

  return (support) => {
    const language = new Language(data, new CellParser(support?.language.parser ?? null), [], 'sandbox-cell');
    return [language.extension, support?.support ?? []];
  };
}

// Highlights each code cell in the language of its %%sandbox line, in any kernel, while the user types.
//
// JupyterLab highlights every cell in the kernel's language. This plugin adds an editor extension of higher precedence
// to cells with the magic line and removes it with the line. It changes nothing in the notebook.

/** @param {import('lab-modules').Shared} shared */
export async function highlightPlugin(shared) {
  const [{ EditorExtensionRegistry, IEditorExtensionRegistry, IEditorLanguageRegistry }, state, { ViewPlugin }] =
    await shared('@jupyterlab/codemirror', '@codemirror/state', '@codemirror/view');
  const cellLanguage = await cellLanguages(shared);

  return {
    id: 'sandbox-kernel:highlight',
    description: 'Highlights %%sandbox cells in their own language.',
    autoStart: true,
    requires: [IEditorExtensionRegistry, IEditorLanguageRegistry],
    activate: (_app, editorExtensions, editorLanguages) => {
      const load = async (mimeType) => {
        if (mimeType === null) return [];
        if (mimeType === 'text/plain') return cellLanguage(null);
        return cellLanguage((await editorLanguages.getLanguage(mimeType)).support);
      };
      editorExtensions.addExtension({
        name: 'sandbox-kernel:highlight',
        factory: ({ model }) =>
          model.type === 'code' ? EditorExtensionRegistry.createImmutableExtension(follower(load, state, ViewPlugin)) : null,
      });
    },
  };
}

// Returns the MIME type of the language that the cell names, or null for a cell without the magic.
export function wantedMimeType(source) {
  const magic = cellMagic(source);
  return magic && highlighterOf(parseLanguage(magic.language ?? DEFAULT_LANGUAGE));
}

// Returns the extension of one editor. It reads the magic line after every change and calls `load` for a new language.
function follower(load, { Compartment, Prec }, ViewPlugin) {
  const slot = new Compartment();
  class Follower {
    constructor(view) {
      this.view = view;
      this.wanted = null;
      this.follow();
    }

    update(change) {
      if (change.docChanged) this.follow();
    }

    destroy() {
      this.view = null;
    }

    async follow() {
      const wanted = wantedMimeType(this.view.state.doc.sliceString(0, MOST_MAGIC));
      if (wanted === this.wanted) return;
      this.wanted = wanted;
      const extension = await load(wanted);
      // Loading takes a while: the user may have typed on, or closed the notebook.
      if (this.wanted === wanted) this.view?.dispatch({ effects: slot.reconfigure(extension) });
    }
  }
  return [Prec.highest(slot.of([])), ViewPlugin.fromClass(Follower)];
}
