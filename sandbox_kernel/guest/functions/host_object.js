// Makes the object `host` of JavaScript: host.search("boats", {limit: 3}) calls the host and returns the result.
//
// For Node.js and for the engine inside WebAssembly, which evaluate this file and call the function with `ask`, the way
// of one message to the host and back, and with `toBase64` and `fromBase64`.
(function (ask, toBase64, fromBase64) {
  'use strict';

  class HostError extends Error {
    constructor(type, message) {
      super(message ? `${type}: ${message}` : type);
      this.name = 'HostError';
      this.type = type;
    }
  }

  const FLOATS = { nan: NaN, inf: Infinity, '-inf': -Infinity };

  // What an object is: 'Object' for plain ones and those of classes, 'Map', 'Promise', …
  const kind = (value) => Object.prototype.toString.call(value).slice(8, -1);

  function encode(value) {
    if (value === undefined || value === null) return null;
    if (typeof value === 'bigint') {
      if (!Number.isSafeInteger(Number(value))) throw new TypeError(`a host function takes no number as large as ${value}; send a text`);
      return Number(value);
    }
    if (typeof value === 'number') {
      return Number.isFinite(value) ? value : { $float: Number.isNaN(value) ? 'nan' : value > 0 ? 'inf' : '-inf' };
    }
    if (typeof value !== 'object') {
      if (typeof value === 'function' || typeof value === 'symbol') throw new TypeError(`a host function takes no ${typeof value}`);
      return value;
    }
    if (ArrayBuffer.isView(value)) return { $bytes: toBase64(new Uint8Array(value.buffer, value.byteOffset, value.byteLength)) };
    if (value instanceof ArrayBuffer) return { $bytes: toBase64(new Uint8Array(value)) };
    if (Array.isArray(value)) return Array.from(value, (item) => encode(item));
    if (typeof value.toJSON === 'function') return encode(value.toJSON());
    switch (kind(value)) {
      case 'Set': return Array.from(value, (item) => encode(item));
      case 'Map': return encode(Object.fromEntries(value));
      case 'String': case 'Number': case 'Boolean': return encode(value.valueOf());
      case 'Object': break;
      default: // a Promise, an Error, a RegExp: nothing of it would arrive
        if (Object.keys(value).length === 0) throw new TypeError(`a host function takes no ${kind(value)}; send plain objects, arrays or bytes`);
    }
    const plain = Object.fromEntries(Object.entries(value).map(([name, item]) => [name, encode(item)]));
    return Object.keys(plain).some((name) => name.startsWith('$')) ? { $object: plain } : plain;
  }

  function decode(value) {
    if (Array.isArray(value)) return value.map((item) => decode(item));
    if (value === null || typeof value !== 'object') return value;
    const names = Object.keys(value);
    if (names.length === 1) {
      if (names[0] === '$bytes') return fromBase64(value.$bytes);
      if (names[0] === '$float') return FLOATS[value.$float];
      if (names[0] === '$object') return Object.fromEntries(Object.entries(value.$object).map(([k, v]) => [k, decode(v)]));
    }
    return Object.fromEntries(names.map((name) => [name, decode(value[name])]));
  }

  // A last plain object may be an argument or hold keyword arguments: the host knows the function and decides.
  function call(name, given) {
    const last = given[given.length - 1];
    const object = last !== null && typeof last === 'object' && Object.getPrototypeOf(last) === Object.prototype;
    return result({ call: name, args: encode(given), object });
  }

  function result(message) {
    const answer = ask(message);
    if (answer.error) throw new HostError(answer.error.type, answer.error.message);
    if (answer.items) return answer.items.map((item) => decode(item))[Symbol.iterator]();
    if (answer.stream !== undefined) return items(answer.stream);
    return decode(answer.value);
  }

  // For the command `host` of a shell: a call with the words of a command line.
  const words = (name, given) => result({ call: name, words: given });

  function* items(stream) {
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

  const host = new Proxy({ HostError, [Symbol.for('host.words')]: words }, {
    get: (known, name) => (typeof name === 'symbol' || name in known || name === 'then' ? known[name] : (...given) => call(name, given)),
  });
  Object.defineProperty(globalThis, 'host', { value: host, writable: true, configurable: true, enumerable: false });
})
