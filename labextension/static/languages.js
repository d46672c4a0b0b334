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
