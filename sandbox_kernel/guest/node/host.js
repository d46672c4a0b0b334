// Host functions in JavaScript: host.search("boats", {limit: 3}) calls the host and returns the result.
//
// A run has a connection of its own (HOST_LINE). A session calls through the command `host`, which opens a new connection
// for each call: a checkpoint must not share one with the cell that is rolled back.
'use strict';

const fs = require('node:fs');
const { spawnSync } = require('node:child_process');

class HostError extends Error {
  constructor(type, message) {
    super(message ? `${type}: ${message}` : type);
    this.name = 'HostError';
    this.type = type;
  }
}

const FLOATS = { nan: NaN, inf: Infinity, '-inf': -Infinity };

function encode(value) {
  if (value === undefined || value === null) return null;
  if (typeof value === 'bigint') return Number(value);
  if (typeof value === 'number') {
    return Number.isFinite(value) ? value : { $float: Number.isNaN(value) ? 'nan' : value > 0 ? 'inf' : '-inf' };
  }
  if (typeof value !== 'object') {
    if (typeof value === 'function' || typeof value === 'symbol') throw new TypeError(`a host function takes no ${typeof value}`);
    return value;
  }
  if (ArrayBuffer.isView(value)) return { $bytes: Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('base64') };
  if (value instanceof ArrayBuffer) return { $bytes: Buffer.from(value).toString('base64') };
  if (Array.isArray(value)) return value.map(encode);
  const plain = Object.fromEntries(Object.entries(value).map(([name, item]) => [name, encode(item)]));
  return Object.keys(plain).some((name) => name.startsWith('$')) ? { $object: plain } : plain;
}

function decode(value) {
  if (Array.isArray(value)) return value.map(decode);
  if (value === null || typeof value !== 'object') return value;
  const names = Object.keys(value);
  if (names.length === 1) {
    if (names[0] === '$bytes') return new Uint8Array(Buffer.from(value.$bytes, 'base64'));
    if (names[0] === '$float') return FLOATS[value.$float];
    if (names[0] === '$object') return Object.fromEntries(Object.entries(value.$object).map(([k, v]) => [k, decode(v)]));
  }
  return Object.fromEntries(names.map((name) => [name, decode(value[name])]));
}

function readExactly(fd, size) {
  const data = Buffer.alloc(size);
  for (let have = 0; have < size; ) {
    const got = fs.readSync(fd, data, have, size - have, null);
    if (got === 0) throw new HostError('ConnectionLost', 'the host closed the connection; a limit of its functions is reached');
    have += got;
  }
  return data;
}

// One message there and one back, over the connection of a run.
function overLine(fd, message) {
  const body = Buffer.from(JSON.stringify(message));
  const frame = Buffer.allocUnsafe(4 + body.length);
  frame.writeUInt32BE(body.length);
  body.copy(frame, 4);
  try {
    for (let sent = 0; sent < frame.length; ) sent += fs.writeSync(fd, frame, sent);
  } catch (error) {
    if (error.code !== 'EPIPE') throw error; // the reason may be there to be read
  }
  return JSON.parse(readExactly(fd, readExactly(fd, 4).readUInt32BE()));
}

function overCommand(hatch, message) {
  const done = spawnSync('host', ['--json'], {
    input: JSON.stringify(message),
    stdio: ['pipe', 'pipe', 'inherit', hatch],
    env: { ...process.env, HOST_HATCH: '3' },
    maxBuffer: 1 << 28,
  });
  if (done.error) throw done.error;
  if (done.status !== 0) throw new HostError('ConnectionLost', 'the call did not reach the host');
  return JSON.parse(done.stdout);
}

// Plain arguments by position; a last plain object that a function cannot take by position is its keyword arguments.
function call(ask, name, given) {
  const last = given[given.length - 1];
  const keywords = last !== null && typeof last === 'object' && Object.getPrototypeOf(last) === Object.prototype;
  const args = encode(keywords ? given.slice(0, -1) : given);
  const answer = ask({ call: name, args, kwargs: keywords ? encode(last).$object ?? encode(last) : {} });
  if (answer.error) throw new HostError(answer.error.type, answer.error.message);
  if (answer.items) return answer.items.map(decode)[Symbol.iterator]();
  if (answer.stream !== undefined) return items(ask, answer.stream);
  return decode(answer.value);
}

function* items(ask, stream) {
  let ended = false;
  try {
    for (;;) {
      const answer = ask({ next: stream });
      ended = answer.end === true || answer.error !== undefined;
      if (answer.error) throw new HostError(answer.error.type, answer.error.message);
      if (answer.end) return;
      yield decode(answer.value);
    }
  } finally {
    if (!ended) ask({ drop: stream });
  }
}

// Makes `host` a global name, if this program may call host functions.
function install() {
  const { HOST_LINE: line, HOST_HATCH: hatch } = process.env;
  if (hatch === undefined) return;
  const ask = line ? (message) => overLine(Number(line), message) : (message) => overCommand(Number(hatch), message);
  const made = { HostError };
  const host = new Proxy(made, {
    get: (known, name) => (typeof name === 'symbol' || name in known || name === 'then' ? known[name] : (...given) => call(ask, name, given)),
  });
  Object.defineProperty(globalThis, 'host', { value: host, writable: true, configurable: true, enumerable: false });
}

module.exports = { install };
