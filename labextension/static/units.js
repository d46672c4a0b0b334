// Parses durations and sizes of options, and formats them for display.
const SECONDS = { ms: 0.001, s: 1, m: 60, h: 3600 };
const MEGABYTES = { k: 1 / 1024, m: 1, g: 1024, t: 1024 * 1024 };

// '500ms' -> 0.5; null for anything that the kernel would refuse.
export function parseSeconds(text) {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h)?$/.exec(text);
  return positive(match && Number(match[1]) * SECONDS[match[2] ?? 's']);
}

// '1G' -> 1024; null for anything that the kernel would refuse.
export function parseMegabytes(text) {
  const match = /^(\d+(?:\.\d+)?)([kmgt])(?:i?b)?$/i.exec(text);
  return positive(match && Math.ceil(Number(match[1]) * MEGABYTES[match[2].toLowerCase()]));
}

function positive(value) {
  return value > 0 ? value : null;
}

export function secondsText(seconds) {
  if (seconds > 0 && seconds < 0.001) return `${rounded(seconds * 1e6)} µs`;
  if (seconds > 0 && seconds < 1) return `${rounded(seconds * 1000)} ms`;
  if (seconds < 120) return `${rounded(seconds)} s`;
  if (seconds < 7200) return `${rounded(seconds / 60)} min`;
  return `${rounded(seconds / 3600)} h`;
}

export function bytesText(bytes) {
  for (const [unit, size] of [['GB', 1 << 30], ['MB', 1 << 20], ['KB', 1 << 10]]) {
    if (bytes >= size) return `${rounded(bytes / size)} ${unit}`;
  }
  return bytes === 1 ? '1 byte' : `${bytes} bytes`;
}

export function megabytesText(megabytes) {
  return bytesText(Math.round(megabytes * (1 << 20)));
}

// Rounds to three significant digits; numbers of 100 and above to whole numbers.
function rounded(value) {
  return String(Number(value >= 100 ? value.toFixed(0) : value.toPrecision(3)));
}
