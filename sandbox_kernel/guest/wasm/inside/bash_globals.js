// Defines the globals of browsers and Node.js that just-bash uses; runs before just-bash is loaded into an image.
(function () {
  "use strict";
  const libraries = globalThis[Symbol.for("sandbox.libraries")];
  const host = globalThis[Symbol.for("sandbox.host")];
  const define = (name, value) => Object.defineProperty(globalThis, name, { value, writable: true, configurable: true });

  class Event { constructor(type) { this.type = type; } }
  class EventTarget {
    #listeners = new Map();
    addEventListener(type, call, options) { this.#listeners.set(call, { type, once: !!options?.once }); }
    removeEventListener(type, call) { this.#listeners.delete(call); }
    dispatchEvent(event) {
      for (const [call, { type, once }] of [...this.#listeners]) {
        if (type !== event.type) continue;
        if (once) this.#listeners.delete(call);
        call(event);
      }
      return true;
    }
  }
  class DOMException extends Error { constructor(message, name = "Error") { super(message); this.name = name; } }
  class AbortSignal extends EventTarget {
    aborted = false;
    reason = undefined;
    onabort = null;
    throwIfAborted() { if (this.aborted) throw this.reason; }
    static abort(reason) { const control = new AbortController(); control.abort(reason); return control.signal; }
    static any(signals) {
      const control = new AbortController();
      for (const signal of signals) {
        if (signal.aborted) control.abort(signal.reason);
        else signal.addEventListener("abort", () => control.abort(signal.reason), { once: true });
      }
      return control.signal;
    }
    static timeout() { return new AbortSignal(); } // never aborts: the sandbox has its own time limit
  }
  class AbortController {
    signal = new AbortSignal();
    abort(reason = new DOMException("This operation was aborted", "AbortError")) {
      if (this.signal.aborted) return;
      Object.assign(this.signal, { aborted: true, reason });
      this.signal.onabort?.(new Event("abort"));
      this.signal.dispatchEvent(new Event("abort"));
    }
  }
  for (const item of [Event, EventTarget, DOMException, AbortSignal, AbortController]) define(item.name, item);
  define("self", globalThis);
  define("crypto", {
    getRandomValues: (array) => { for (let i = 0; i < array.length; i++) array[i] = Math.floor(Math.random() * 256); return array; },
    subtle: {
      digest: async (name, data) => {
        const answer = host("digest", String(name?.name ?? name).replace("-", "").toLowerCase(), latin(new Uint8Array(data.buffer ?? data)));
        if (answer[0] !== "V") throw new Error(JSON.parse(answer.slice(1)).message);
        return Uint8Array.from(answer.slice(1), (c) => c.charCodeAt(0)).buffer;
      },
    },
    randomUUID: () => "xxxxxxxx-xxxx-4xxx-8xxx-xxxxxxxxxxxx".replace(/x/g, () => Math.floor(Math.random() * 16).toString(16)),
  });

  // Node.js's Buffer, as far as gzip and base64 use it
  class Buffer extends Uint8Array {
    static from(data, encoding) {
      if (typeof data !== "string") return Object.setPrototypeOf(new Uint8Array(data), Buffer.prototype);
      const plain = encoding === "latin1" || encoding === "binary" ? data : encoding === "base64" ? atob(data) : undefined;
      const made = plain === undefined ? new TextEncoder().encode(data) : Uint8Array.from(plain, (c) => c.charCodeAt(0));
      return Object.setPrototypeOf(made, Buffer.prototype);
    }
    static alloc(size) { return Buffer.from(new Uint8Array(size)); }
    static isBuffer(value) { return value instanceof Buffer; }
    static concat(parts) {
      const made = Buffer.alloc(parts.reduce((sum, part) => sum + part.length, 0));
      let at = 0;
      for (const part of parts) { made.set(part, at); at += part.length; }
      return made;
    }
    static byteLength(text) { return new TextEncoder().encode(text).length; }
    toString(encoding = "utf8") {
      if (encoding === "latin1" || encoding === "binary") return latin(this);
      if (encoding === "base64") return btoa(latin(this));
      if (encoding === "hex") return [...this].map((b) => b.toString(16).padStart(2, "0")).join("");
      return new TextDecoder().decode(this);
    }
  }
  define("Buffer", Buffer);

  const latin = (bytes) => {
    let text = "";
    for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode.apply(null, bytes.subarray(i, i + 8192));
    return text;
  };
  const zip = (operation) => (data, options) => {
    const answer = host(operation, latin(data instanceof Uint8Array ? data : new Uint8Array(data)), String(options?.level ?? 6));
    if (answer[0] !== "V") throw new Error(JSON.parse(answer.slice(1)).message);
    return Buffer.from(answer.slice(1), "latin1");
  };
  libraries["node:zlib"] = { gunzipSync: zip("gunzip"), gzipSync: zip("gzip"), constants: { Z_BEST_COMPRESSION: 9, Z_BEST_SPEED: 1, Z_DEFAULT_COMPRESSION: 6 } };
  // Only html-to-markdown needs it; the catalogue says that this command is missing.
  libraries.turndown = { default: class { constructor() { throw new Error("html-to-markdown is not part of this sandbox"); } } };
  // Only `ls` uses it, for patterns that the shell has not expanded.
  libraries.minimatch = {
    minimatch(text, pattern) {
      const escaped = pattern.replace(/[.+^${}()|\\]/g, "\\$&").replace(/\*\*/g, "\0").replace(/\*/g, "[^/]*").replace(/\0/g, ".*").replace(/\?/g, "[^/]");
      return new RegExp(`^${escaped}$`).test(text);
    },
  };
})()
