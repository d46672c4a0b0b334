// The languages of %%sandbox and the highlighter that each gets.
//
// Names and aliases are those of sandbox_kernel/model/language.py; tests/labextension/test_languages.py holds the two together.
// The MIME types are those of JupyterLab's own language registry. JupyterLab has no Zig: Rust's grammar knows the most
// of its words (fn, pub, const, struct, enum, while, return) and its strings and comments.
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

// What a cell without a language is written in.
export const DEFAULT_LANGUAGE = 'python';

// The language that a person meant by `name`, or null for a name that the kernel would refuse.
export function parseLanguage(name) {
  const key = name.trim().toLowerCase();
  const language = ALIASES.get(key) ?? key;
  return HIGHLIGHTER.has(language) ? language : null;
}

// The MIME type by which JupyterLab highlights a language; an unknown one is plain text, never the kernel's.
export function highlighterOf(language) {
  return HIGHLIGHTER.get(language) ?? 'text/plain';
}

export function knownNames() {
  return { languages: [...HIGHLIGHTER.keys()], aliases: Object.fromEntries(ALIASES) };
}
