// Reads what a notebook and a frame say about a frame: every value is checked, because both may be hostile.
export const FRAME = 'application/vnd.sandbox-kernel.frame+json';

const MOST = { markup: 12 << 20, libraries: 16, height: 2000 };
const LEAST_HEIGHT = 4;
const REFUSED = {
  script: 'a script', style: 'a style sheet', picture: 'a picture', font: 'a font', data: 'data', media: 'a sound or video',
  page: 'something',
};

export function readFrame(data) {
  const { html, libraries = [], height, widget } = data ?? {};
  if (typeof html !== 'string' || html.length > MOST.markup) return null;
  if (!Array.isArray(libraries) || libraries.length > MOST.libraries) return null;
  if (!libraries.every((name) => typeof name === 'string' && /^[0-9a-f]{64}$/.test(name))) return null;
  return { html, libraries, height: fittingHeight(height ?? 150), widget: readWidget(widget) };
}

function readWidget(widget) {
  const { model_id: model, gate } = widget ?? {};
  const isName = (text) => typeof text === 'string' && /^[0-9a-f-]{1,64}$/.test(text);
  return isName(model) && isName(gate) ? { model, gate } : null;
}

export function fittingHeight(height) {
  return Math.min(Math.max(Number(height) || 0, LEAST_HEIGHT), MOST.height);
}

// The hosts that tags of a markup name, in lower case: the receipt tells of these.
export function namedHosts(html) {
  const tags = /<(?:script|link|img|iframe|audio|video|source)\s[^<>]{0,2000}?\b(?:src|href)\s*=\s*["']?(?:https?:)?\/\/([A-Za-z0-9.:-]{1,100})/gi;
  return new Set(Array.from(html.matchAll(tags), ([, host]) => host.toLowerCase()));
}

// The sentence for something that a frame wanted to load; null when it is none, or when the receipt says it already.
export function refusedSentence({ what, host }, named) {
  if (typeof host !== 'string' || !/^[A-Za-z0-9.:-]{1,100}$/.test(host) || named.has(host.toLowerCase())) return null;
  return `This output wanted to load ${Object.hasOwn(REFUSED, what) ? REFUSED[what] : REFUSED.page} from ${host}: blocked`;
}

// The sentence for a message that was larger than a frame may send; its numbers come from our own outer document.
export function droppedSentence({ bytes, most, isFile, isSaved }) {
  if (bytes === Infinity) return 'This output sent a message that is not passed on: only text, numbers, lists, tables and buffers are';
  const inMegabytes = (number, round) => `${round((Number(number) || 0) / 1048576)} MB`;
  const [size, limit] = [inMegabytes(bytes, Math.ceil), inMegabytes(most, Math.floor)];
  if (isFile !== true) return `This output sent ${size} at once: dropped, ${limit} is the most`;
  if (isSaved === true) return `Not saved: a file of ${size}, and ${limit} in 10 seconds is the most. Let the program write it into a folder (--here)`;
  return `Not uploaded: ${size}, and ${limit} in 10 seconds is the most. Put larger files into a folder of the session (--here, --mount)`;
}

// What a browser adds to the name of a file that has no ending.
const ENDINGS = new Map(Object.entries({
  'image/png': '.png', 'image/jpeg': '.jpg', 'image/svg+xml': '.svg', 'text/csv': '.csv', 'text/plain': '.txt', 'application/json': '.json',
}));

// All but letters, digits and signs that are seen as they are: what turns the direction of writing, letters that are drawn as
// nothing or as a blank; and what a system does not take.
const UNSEEN = /[^\p{L}\p{M}\p{N}\p{P}\p{S} ]|\p{Default_Ignorable_Code_Point}|[\u2800<>:"|?*]/gu;

// A file that an output wants to save: a name that can be shown and saved, without a path, and its bytes; null when it is none.
export function fileToSave({ name, kind, file }) {
  if (!(file instanceof ArrayBuffer)) return null;
  const seen = String(name).split(/[\\/]/).at(-1).replace(UNSEEN, '').replace(/ +/g, ' ').replace(/^[. ]+$|[. ]+$/g, '');
  const named = [...seen].slice(-100).join('');
  const begun = /^[^. ]/.test(named) ? named : `output${named.trim()}`;
  return { name: `${begun}${begun.includes('.') ? '' : (ENDINGS.get(kind) ?? '')}`, file };
}
