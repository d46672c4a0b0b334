// Makes the object `host` of JavaScript: host.search("boats", {limit: 3}) calls the host and returns the result.
//
// For Node.js and for the engine inside WebAssembly, which evaluate this file and call the function with `ask`, the way
// of one message to the host and back, and with the two functions for base64.
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
    if (ArrayBuffer.isView(value)) return { $bytes: toBase64(new Uint8Array(value.buffer, value.byteOffset, value.byteLength)) };
    if (value instanceof ArrayBuffer) return { $bytes: toBase64(new Uint8Array(value)) };
    if (Array.isArray(value)) return value.map(encode);
    const plain = Object.fromEntries(Object.entries(value).map(([name, item]) => [name, encode(item)]));
    return Object.keys(plain).some((name) => name.startsWith('$')) ? { $object: plain } : plain;
  }

  function decode(value) {
    if (Array.isArray(value)) return value.map(decode);
    if (value === null || typeof value !== 'object') return value;
    const names = Object.keys(value);
    if (names.length === 1) {
      if (names[0] === '$bytes') return fromBase64(value.$bytes);
      if (names[0] === '$float') return FLOATS[value.$float];
      if (names[0] === '$object') return Object.fromEntries(Object.entries(value.$object).map(([k, v]) => [k, decode(v)]));
    }
    return Object.fromEntries(names.map((name) => [name, decode(value[name])]));
  }

  // Plain arguments by position; a last plain object that a function cannot take by position is its keyword arguments.
  function call(name, given) {
    const last = given[given.length - 1];
    const keywords = last !== null && typeof last === 'object' && Object.getPrototypeOf(last) === Object.prototype;
    const args = encode(keywords ? given.slice(0, -1) : given);
    const answer = ask({ call: name, args, kwargs: keywords ? encode(last).$object ?? encode(last) : {} });
    if (answer.error) throw new HostError(answer.error.type, answer.error.message);
    if (answer.items) return answer.items.map(decode)[Symbol.iterator]();
    if (answer.stream !== undefined) return items(answer.stream);
    return decode(answer.value);
  }

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

  const host = new Proxy({ HostError }, {
    get: (known, name) => (typeof name === 'symbol' || name in known || name === 'then' ? known[name] : (...given) => call(name, given)),
  });
  Object.defineProperty(globalThis, 'host', { value: host, writable: true, configurable: true, enumerable: false });
})
