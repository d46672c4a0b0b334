// Libraries of frames, by the SHA-256 of their source: JavaScript that several frames use. The page never runs it.
export const LIBRARY = 'application/vnd.sandbox-kernel.library+json';

const MOST_CHARACTERS = 48 << 20;
const found = new Map();
const waiting = new Map();

// The packed source stands once in the output, in the frame that shows it to pages without this extension.
const BEFORE = '&quot;gzip&quot;: &quot;';
const AFTER = '&quot;';
const MOST_PACKED = 12000000;

function nameOf(data) {
  const name = data[LIBRARY]?.sha256;
  return /^[0-9a-f]{64}$/.test(name) ? name : null;
}

// The packed source in an output; null if there is none. Searched for without a regular expression, which takes a tenth
// of a second for megabytes.
export function packedLibrary(data) {
  const html = Array.isArray(data['text/html']) ? data['text/html'].join('') : data['text/html'];
  if (typeof html !== 'string') return null;
  const from = html.indexOf(BEFORE) + BEFORE.length;
  const packed = html.slice(from, html.indexOf(AFTER, from));
  return from > BEFORE.length && packed.length <= MOST_PACKED && /^[A-Za-z0-9+/=]+$/.test(packed) ? packed : null;
}

// JupyterLab cleans the HTML of every output to look for headings, which takes it longer for a library than to draw a
// figure. A single frame, as a library is, has none, and nothing of it is left by the cleaner: the answer is known.
export function isOnlyFrame(html) {
  const end = '"></iframe>';
  return typeof html === 'string' && html.startsWith('<iframe sandbox="allow-scripts" ') && html.endsWith(end) && html.indexOf('<', 1) === html.length - end.length + 2;
}

export function skipFrames(sanitizer) {
  const clean = sanitizer.sanitize.bind(sanitizer);
  sanitizer.sanitize = (html, options) => (isOnlyFrame(html) ? '' : clean(html, options));
}

async function unpacked(base64) {
  const bytes = Uint8Array.fromBase64?.(base64) ?? Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip')).getReader();
  const decoder = new TextDecoder();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    text += decoder.decode(value, { stream: true });
    if (text.length > MOST_CHARACTERS) throw new Error('the library is too large');
  }
}

async function digest(text) {
  const bytes = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text));
  return [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

export async function keepLibrary(data) {
  const name = nameOf(data);
  if (!name || found.has(name)) return;
  const packed = packedLibrary(data);
  if (!packed) return;
  const source = await unpacked(packed);
  // Where the page is not secure there is no digest; the name is then believed. Libraries run only in frames.
  if (globalThis.crypto?.subtle && (await digest(source)) !== name) return;
  found.set(name, source);
  for (const use of waiting.get(name) ?? []) use(source);
  waiting.delete(name);
}

// Calls `use` with the source as soon as it is known. Calls `missing` when the notebook does not hold it after a while.
export function withLibrary(name, use, missing) {
  if (found.has(name)) {
    use(found.get(name));
    return;
  }
  waiting.set(name, [...(waiting.get(name) ?? []), use]);
  setTimeout(() => found.has(name) || missing(name), 15000);
}
