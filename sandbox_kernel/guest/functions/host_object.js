// Makes the object `host` of JavaScript: host.search("boats", {limit: 3}) calls the host and returns the result.
//
// For Node.js and for the engine inside WebAssembly, which evaluate this file and call the function with `ask`, the way
// of one message to the host and back, and with `putBytes` and `takeBytes`, which say how bytes are written in a message.
// Both get the list of raw bytes that go with the message; text alone can have them as base64.
(function (ask, putBytes, takeBytes) {
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

  function encode(value, raw) {
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
    if (ArrayBuffer.isView(value)) return { $bytes: putBytes(new Uint8Array(value.buffer, value.byteOffset, value.byteLength), raw) };
    if (value instanceof ArrayBuffer) return { $bytes: putBytes(new Uint8Array(value), raw) };
    if (Array.isArray(value)) return Array.from(value, (item) => encode(item, raw));
    if (typeof value.toJSON === 'function') return encode(value.toJSON(), raw);
    switch (kind(value)) {
      case 'Set': return Array.from(value, (item) => encode(item, raw));
      case 'Map': return encode(Object.fromEntries(value), raw);
      case 'String': case 'Number': case 'Boolean': return encode(value.valueOf(), raw);
      case 'Object': break;
      default: // a Promise, an Error, a RegExp: nothing of it would arrive
        if (Object.keys(value).length === 0) throw new TypeError(`a host function takes no ${kind(value)}; send plain objects, arrays or bytes`);
    }
    const plain = Object.fromEntries(Object.entries(value).map(([name, item]) => [name, encode(item, raw)]));
    return Object.keys(plain).some((name) => name.startsWith('$')) ? { $object: plain } : plain;
  }

  function decode(value, raw) {
    if (Array.isArray(value)) return value.map((item) => decode(item, raw));
    if (value === null || typeof value !== 'object') return value;
    const names = Object.keys(value);
    if (names.length === 1) {
      if (names[0] === '$bytes') return takeBytes(value.$bytes, raw);
      if (names[0] === '$float') return FLOATS[value.$float];
      if (names[0] === '$object') return Object.fromEntries(Object.entries(value.$object).map(([k, v]) => [k, decode(v, raw)]));
    }
    return Object.fromEntries(names.map((name) => [name, decode(value[name], raw)]));
  }

  // A last plain object may be an argument or hold keyword arguments: the host knows the function and decides.
  function call(name, given) {
    const last = given[given.length - 1];
    const object = last !== null && typeof last === 'object' && Object.getPrototypeOf(last) === Object.prototype;
    const raw = [];
    return result({ call: name, args: encode(given, raw), object }, raw);
  }

  function result(message, raw) {
    const [answer, rest] = ask(message, raw);
    if (answer.error) throw new HostError(answer.error.type, answer.error.message);
    if (answer.items) return answer.items.map((item) => decode(item, rest))[Symbol.iterator]();
    if (answer.stream !== undefined) return items(answer.stream);
    return decode(answer.value, rest);
  }

  // For the command `host` of a shell: a call with the words of a command line.
  const words = (name, given) => result({ call: name, words: given }, []);

  function* items(stream) {
    let ended = false;
    try {
      for (;;) {
        const [answer, rest] = ask({ next: stream }, []);
        ended = answer.end === true || answer.error !== undefined;
        if (answer.error) throw new HostError(answer.error.type, answer.error.message);
        if (answer.end) return;
        yield decode(answer.value, rest);
      }
    } finally {
      if (!ended) ask({ drop: stream }, []);
    }
  }

  const host = new Proxy({ HostError, [Symbol.for('host.words')]: words }, {
    get: (known, name) => (typeof name === 'symbol' || name in known || name === 'then' ? known[name] : (...given) => call(name, given)),
  });
  Object.defineProperty(globalThis, 'host', { value: host, writable: true, configurable: true, enumerable: false });
})
