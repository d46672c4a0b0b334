// Libraries of frames, by the SHA-256 of their source: JavaScript that several frames use. The page never runs it.
export const LIBRARY = 'application/vnd.sandbox-kernel.library+json';

const MOST_CHARACTERS = 48 << 20;
const found = new Map();
const waiting = new Map();

// The packed source stands once in the output, in the frame that shows it to pages without this extension.
const PACKED = /&quot;gzip&quot;: &quot;([A-Za-z0-9+/=]{1,12000000})&quot;/;

export function packedLibrary(data) {
  const name = data[LIBRARY]?.sha256;
  const html = Array.isArray(data['text/html']) ? data['text/html'].join('') : data['text/html'];
  if (!/^[0-9a-f]{64}$/.test(name) || typeof html !== 'string') return null;
  const packed = PACKED.exec(html)?.[1];
  return packed ? { name, packed } : null;
}

async function unpacked(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
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
  const library = packedLibrary(data);
  if (!library || found.has(library.name)) return;
  const source = await unpacked(library.packed);
  // Where the page is not secure there is no digest; the name is then believed. Libraries run only in frames.
  if (globalThis.crypto?.subtle && (await digest(source)) !== library.name) return;
  found.set(library.name, source);
  for (const use of waiting.get(library.name) ?? []) use(source);
  waiting.delete(library.name);
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
