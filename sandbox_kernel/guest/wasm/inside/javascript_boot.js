// Defines the globals that a JavaScript program expects; runs once in a new engine, which is then kept as an image.
//
// The engine has ECMAScript only. This file uses three functions of the host: `host(operation, ...strings)`, which
// returns a string, "V" and a value or "E" and an error as JSON; and `writeOut` and `writeErr`, which print.
// The object that is returned at the end is for embedder.py, which drives the engine; user code never gets it.
(function (host, writeOut, writeErr) {
  "use strict";

  function ask(...request) {
    const answer = host(...request.map(String));
    if (answer[0] === "V") return answer.slice(1);
    const { code, message, path } = JSON.parse(answer.slice(1));
    const error = new Error(path === undefined ? `${code}: ${message}` : `${code}: ${message}, '${path}'`);
    error.code = code;
    if (path !== undefined) error.path = path;
    throw error;
  }

  // ---- showing values -------------------------------------------------------------------------------------------
  const PLAIN_KEY = /^[A-Za-z_$][\w$]*$/;
  const quote = (text) => (text.includes("'") ? JSON.stringify(text) : `'${JSON.stringify(text).slice(1, -1).replaceAll('\\"', '"')}'`);

  function inspect(value, depth = 0, seen = []) {
    switch (typeof value) {
      case "string": return quote(value);
      case "bigint": return `${value}n`;
      case "symbol": return value.toString();
      case "function": return inspectFunction(value);
      case "number": return Object.is(value, -0) ? "-0" : String(value);
      case "object": return value === null ? "null" : inspectObject(value, depth, seen);
      default: return String(value);
    }
  }

  function inspectFunction(value) {
    const isClass = /^class\b/.test(Function.prototype.toString.call(value));
    return isClass ? `[class ${value.name || "(anonymous)"}]` : `[Function: ${value.name || "(anonymous)"}]`;
  }

  function inspectObject(value, depth, seen) {
    if (value instanceof Error) return describeError(value);
    if (seen.includes(value)) return "[Circular *1]";
    if (value instanceof Date) return Number.isNaN(value.getTime()) ? "Invalid Date" : value.toISOString();
    if (value instanceof RegExp) return String(value);
    if (value instanceof Promise) return "Promise {}";
    const name = value.constructor?.name;
    if (depth > 2) return Array.isArray(value) ? "[Array]" : `[${name || "Object"}]`;
    const within = [...seen, value];
    const show = (item) => inspect(item, depth + 1, within);
    if (Array.isArray(value)) return list("", "[", value, show, "]");
    if (ArrayBuffer.isView(value) && !(value instanceof DataView)) return list(`${name}(${value.length}) `, "[", value, show, "]");
    if (value instanceof Map) return list(`Map(${value.size}) `, "{", [...value], ([k, v]) => `${show(k)} => ${show(v)}`, "}");
    if (value instanceof Set) return list(`Set(${value.size}) `, "{", [...value], show, "}");
    const key = (k) => (typeof k === "symbol" ? `[${k.toString()}]` : PLAIN_KEY.test(k) ? k : quote(k));
    const entries = Reflect.ownKeys(value).filter((k) => Object.prototype.propertyIsEnumerable.call(value, k));
    const prefix = name === undefined ? "[Object: null prototype] " : name === "Object" ? "" : `${name} `;
    const shown = (k) => {
      const { get, set } = Object.getOwnPropertyDescriptor(value, k);
      return `${key(k)}: ${get || set ? `[${get ? "Getter" : ""}${get && set ? "/" : ""}${set ? "Setter" : ""}]` : show(value[k])}`;
    };
    return list(prefix, "{", entries, shown, "}");
  }

  function list(prefix, open, items, show, close) {
    const most = 100;
    const parts = [];
    for (let i = 0; i < Math.min(items.length, most); i++) {
      parts.push(Array.isArray(items) && !(i in items) ? "<empty>" : show(items[i]));
    }
    if (items.length > most) parts.push(`... ${items.length - most} more items`);
    if (!parts.length) return `${prefix}${open}${close}`;
    const line = `${prefix}${open} ${parts.join(", ")} ${close}`;
    if (line.length <= 76 && !line.includes("\n")) return line;
    return `${prefix}${open}\n${parts.map((part) => `  ${part.replaceAll("\n", "\n  ")}`).join(",\n")}\n${close}`;
  }

  function describeError(error) {
    const head = `${error.name || "Error"}${error.message ? `: ${error.message}` : ""}`;
    const stack = String(error.stack ?? "").split("\n").filter((line) => line.trim() && !line.includes("<boot>"));
    const lines = stack.map((line) => `    ${line.trim()}`).filter((line) => !line.includes(head));
    const cause = error.cause === undefined ? "" : `\n  [cause]: ${inspect(error.cause, 1)}`;
    return [head, ...lines].join("\n") + cause;
  }

  function format(...values) {
    if (typeof values[0] !== "string") return values.map((v) => (typeof v === "string" ? v : inspect(v))).join(" ");
    let next = 1;
    const text = values[0].replace(/%([sdifjoOc%])/g, (whole, kind) => {
      if (kind === "%") return "%";
      if (next >= values.length) return whole;
      const value = values[next++];
      switch (kind) {
        case "s": return typeof value === "string" ? value : typeof value === "object" ? inspect(value, 1) : String(value);
        case "d": case "i": return String(kind === "i" ? Number.parseInt(value, 10) : Number(value));
        case "f": return String(Number.parseFloat(value));
        case "j": return JSON.stringify(value);
        case "c": return "";
        default: return inspect(value);
      }
    });
    return [text, ...values.slice(next).map((v) => (typeof v === "string" ? v : inspect(v)))].join(" ");
  }

  // ---- console ----------------------------------------------------------------------------------------------------
  let indent = "";
  const counts = new Map(), started = new Map();
  const print = (write, values) => {
    const text = format(...values);
    write((indent ? text.split("\n").map((line) => indent + line).join("\n") : text) + "\n");
  };
  const out = (...values) => print(writeOut, values);
  const err = (...values) => print(writeErr, values);
  const elapsed = (label) => `${label}: ${(Number(host("now").slice(1)) - (started.get(label) ?? 0)).toFixed(3)}ms`;
  const console = {
    log: out, info: out, debug: out, error: err, warn: err,
    dir: (value) => out(inspect(value)),
    trace: (...values) => err(`Trace: ${format(...values)}`),
    assert: (good, ...values) => { if (!good) err("Assertion failed" + (values.length ? `: ${format(...values)}` : "")); },
    count: (label = "default") => { counts.set(label, (counts.get(label) ?? 0) + 1); out(`${label}: ${counts.get(label)}`); },
    countReset: (label = "default") => { counts.delete(label); },
    group: (...values) => { if (values.length) out(...values); indent += "  "; },
    groupEnd: () => { indent = indent.slice(2); },
    time: (label = "default") => { started.set(label, Number(host("now").slice(1))); },
    timeLog: (label = "default", ...values) => out(elapsed(label), ...values),
    timeEnd: (label = "default") => { out(elapsed(label)); started.delete(label); },
    table: (value) => out(table(value)),
  };

  function table(value) {
    if (typeof value !== "object" || value === null) return format(value);
    const rows = Object.entries(value);
    const columns = [...new Set(rows.flatMap(([, row]) => (typeof row === "object" && row ? Object.keys(row) : [])))];
    const plain = rows.some(([, row]) => typeof row !== "object" || !row);
    const head = ["(index)", ...columns, ...(plain ? ["Values"] : [])];
    const cells = rows.map(([index, row]) => [
      index,
      ...columns.map((c) => (row && typeof row === "object" && c in row ? inspect(row[c], 1) : "")),
      ...(plain ? [row && typeof row === "object" ? "" : inspect(row)] : []),
    ]);
    const width = head.map((title, i) => Math.max(title.length, ...cells.map((row) => row[i].length)) + 2);
    const rule = (left, mid, right) => left + width.map((w) => "─".repeat(w)).join(mid) + right;
    const line = (row) => `│${row.map((cell, i) => ` ${cell.padEnd(width[i] - 1)}`).join("│")}│`;
    return [rule("┌", "┬", "┐"), line(head), rule("├", "┼", "┤"), ...cells.map(line), rule("└", "┴", "┘")].join("\n");
  }

  // ---- timers: run by the driver between jobs ------------------------------------------------------------------------
  const timers = new Map();
  let lastTimer = 0;
  const now = () => Number(host("now").slice(1));

  function setTimer(callback, delay, repeat, values) {
    if (typeof callback !== "function") throw new TypeError("The \"callback\" argument must be of type function");
    const ms = Number(delay);
    const wait = ms >= 1 && ms <= 0x7fffffff ? ms : 1;
    const id = ++lastTimer;
    timers.set(id, { id, at: now() + wait, wait: repeat ? wait : 0, callback, values });
    return id;
  }

  // Runs the timer that is due first; returns how long to wait for the next one, or -1 when there is none.
  function tick() {
    let first;
    for (const timer of timers.values()) if (!first || timer.at < first.at) first = timer;
    if (!first) return -1;
    const left = first.at - now();
    if (left > 0) return left;
    if (first.wait) first.at = now() + first.wait;
    else timers.delete(first.id);
    first.callback(...first.values);
    return 0;
  }

  // ---- text and bytes -------------------------------------------------------------------------------------------------
  function latin(bytes) {
    let text = "";
    for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode.apply(null, bytes.subarray(i, i + 8192));
    return text;
  }

  function unlatin(text) {
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return bytes;
  }

  const view = (data) => (data instanceof Uint8Array ? data : ArrayBuffer.isView(data)
    ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : new Uint8Array(data));

  class TextEncoder {
    get encoding() { return "utf-8"; }
    encode(text = "") { return unlatin(ask("encode", String(text).toWellFormed())); }
  }

  class TextDecoder {
    #label; #fatal;
    constructor(label = "utf-8", options = {}) { this.#label = String(label).toLowerCase(); this.#fatal = !!options.fatal; }
    get encoding() { return this.#label; }
    get fatal() { return this.#fatal; }
    decode(data) { return data === undefined ? "" : ask("decode", latin(view(data)), this.#label, this.#fatal ? "1" : ""); }
  }

  // ---- files: the folders that the host opened, and nothing else -----------------------------------------------------
  const bytesOf = (data) => (typeof data === "string" ? ["text", data.toWellFormed()] : ["bytes", latin(view(data))]);
  const encodingOf = (options) => (typeof options === "string" ? options : options?.encoding);
  class Stats {
    constructor(fields) { Object.assign(this, fields, { mtime: new Date(fields.mtimeMs) }); }
    isFile() { return this.kind === "file"; }
    isDirectory() { return this.kind === "directory"; }
    isSymbolicLink() { return this.kind === "link"; }
  }
  const fs = {
    readFileSync(path, options) {
      const encoding = encodingOf(options);
      return encoding ? ask("read", path, "text") : unlatin(ask("read", path, "bytes"));
    },
    writeFileSync(path, data) { ask("store", path, "", ...bytesOf(data)); },
    appendFileSync(path, data) { ask("store", path, "append", ...bytesOf(data)); },
    existsSync(path) { try { ask("stat", path); return true; } catch { return false; } },
    statSync(path) { return new Stats(JSON.parse(ask("stat", path))); },
    lstatSync(path) { return new Stats(JSON.parse(ask("lstat", path))); },
    readdirSync(path) { return JSON.parse(ask("list", path)); },
    mkdirSync(path, options) { ask("mkdir", path, options?.recursive ? "1" : ""); },
    rmSync(path, options) { ask("remove", path, options?.recursive ? "1" : "", options?.force ? "1" : ""); },
    unlinkSync(path) { ask("remove", path, "", ""); },
    rmdirSync(path) { ask("rmdir", path); },
    renameSync(from, to) { ask("rename", from, to); },
    chmodSync(path, mode) { ask("chmod", path, mode); },
    utimesSync(path, ms) { ask("utimes", path, ms); },
    readlinkSync(path) { return ask("readlink", path); },
    symlinkSync(target, path) { ask("symlink", target, path); },
    copyFileSync(from, to) { ask("store", to, "", "bytes", ask("read", from, "bytes")); },
  };
  fs.promises = Object.fromEntries(
    Object.entries(fs).map(([name, call]) => [name.replace(/Sync$/, ""), async (...values) => call(...values)]),
  );

  const normalize = (path) => {
    const parts = [];
    for (const part of path.split("/")) {
      if (part === "..") parts.length && parts.at(-1) !== ".." ? parts.pop() : path[0] === "/" || parts.push("..");
      else if (part && part !== ".") parts.push(part);
    }
    return (path[0] === "/" ? "/" : "") + parts.join("/") || ".";
  };
  const path = {
    sep: "/", delimiter: ":", normalize,
    join: (...parts) => normalize(parts.filter(Boolean).join("/") || "."),
    resolve: (...parts) => parts.reduceRight((done, part) => (done[0] === "/" ? done : part ? `${part}/${done}` : done), ""),
    isAbsolute: (text) => text[0] === "/",
    dirname: (text) => { const cut = text.replace(/\/+$/, "").lastIndexOf("/"); return cut > 0 ? text.slice(0, cut) : cut === 0 ? "/" : "."; },
    basename: (text, end = "") => { const name = text.replace(/\/+$/, "").split("/").pop(); return end && name.endsWith(end) && name !== end ? name.slice(0, -end.length) : name; },
    extname: (text) => /[^./](\.[^./]*)$/.exec(text)?.[1] ?? "",
  };
  const resolve = path.resolve;
  path.resolve = (...parts) => normalize(resolve("/box", ...parts)).replace(/(.)\/$/, "$1");

  const process = {
    argv: [], env: {}, exitCode: undefined, platform: "wasi", version: "v0.0.0-quickjs", versions: { quickjs: "ng" },
    // The host interrupts the engine after this call: nothing after this line runs, and nothing can catch it.
    exit(code) { ask("exit", code ?? process.exitCode ?? 0); for (;;); },
    cwd: () => "/box",
    uptime: () => now() / 1000,
    nextTick: (callback, ...values) => { Promise.resolve().then(() => callback(...values)); },
    hrtime: Object.assign(() => { const t = now(); return [Math.floor(t / 1000), Math.floor((t % 1000) * 1e6)]; },
      { bigint: () => BigInt(Math.floor(now() * 1e6)) }),
    memoryUsage: () => ({ heapUsed: Number(ask("memory")) }),
    stdout: { write: (text) => { writeOut(typeof text === "string" ? text : new TextDecoder().decode(text)); return true; }, isTTY: false },
    stderr: { write: (text) => { writeErr(typeof text === "string" ? text : new TextDecoder().decode(text)); return true; }, isTTY: false },
  };

  function assert(value, message) { if (!value) throw new Error(message ?? "Assertion failed"); }
  Object.assign(assert, {
    ok: assert,
    strictEqual: (a, b, message) => assert(Object.is(a, b), message ?? `${inspect(a)} !== ${inspect(b)}`),
    deepStrictEqual: (a, b, message) => assert(inspect(a) === inspect(b), message ?? `${inspect(a)} is not ${inspect(b)}`),
    throws: (call, message) => { try { call(); } catch { return; } throw new Error(message ?? "Missing expected exception"); },
  });
  assert.equal = assert.strictEqual;
  assert.deepEqual = assert.deepStrictEqual;

  const modules = { fs, "fs/promises": fs.promises, path, process, assert, util: { inspect: (value) => inspect(value), format }, os: { EOL: "\n", platform: () => "wasi" } };
  const loaded = new Map();

  function requireFrom(folder) {
    return function require(name) {
      const plain = String(name).replace(/^node:/, "");
      if (Object.hasOwn(modules, plain)) return modules[plain];
      if (!/^[./]/.test(plain)) {
        throw new Error(`Cannot find module '${name}': there are no packages in this sandbox; built in are ${Object.keys(modules).join(", ")}`);
      }
      const file = path.resolve(folder, plain);
      const found = [file, `${file}.js`, `${file}.json`, `${file}/index.js`].find((f) => fs.existsSync(f) && fs.statSync(f).isFile());
      if (!found) throw new Error(`Cannot find module '${name}'`);
      if (loaded.has(found)) return loaded.get(found).exports;
      const module = { exports: {} };
      loaded.set(found, module);
      const source = fs.readFileSync(found, "utf8");
      if (found.endsWith(".json")) module.exports = JSON.parse(source);
      else new Function("exports", "require", "module", "__filename", "__dirname", source)(
        module.exports, requireFrom(path.dirname(found)), module, found, path.dirname(found));
      return module.exports;
    };
  }

  const readLine = (question) => {
    const answer = ask("line", question ?? "");
    return answer === "" ? null : answer.replace(/\n$/, "");
  };
  fs.readFileSync = ((plain) => (file, options) => {
    if (file !== 0 && file !== "/dev/stdin") return plain(file, options);
    const all = ask("stdin");
    return encodingOf(options) ? ask("decode", all, "utf-8", "") : unlatin(all);
  })(fs.readFileSync);

  // ---- fetch: the host fetches, under the sandbox's policy ----------------------------------------------------------
  class Headers {
    #all = new Map();
    constructor(init = {}) { for (const [name, value] of Symbol.iterator in init ? init : Object.entries(init)) this.append(name, value); }
    append(name, value) { const key = String(name).toLowerCase(), old = this.#all.get(key); this.#all.set(key, old === undefined ? String(value) : `${old}, ${value}`); }
    set(name, value) { this.#all.set(String(name).toLowerCase(), String(value)); }
    get(name) { return this.#all.get(String(name).toLowerCase()) ?? null; }
    has(name) { return this.#all.has(String(name).toLowerCase()); }
    delete(name) { this.#all.delete(String(name).toLowerCase()); }
    forEach(call) { this.#all.forEach((value, name) => call(value, name, this)); }
    entries() { return this.#all.entries(); }
    keys() { return this.#all.keys(); }
    values() { return this.#all.values(); }
    [Symbol.iterator]() { return this.#all.entries(); }
  }

  class Response {
    #body; #used = false;
    constructor(status, headers, url, body) {
      this.#body = body;
      Object.assign(this, { status, ok: status >= 200 && status <= 299, statusText: "", headers: new Headers(headers), url, type: "basic" });
    }
    get bodyUsed() { return this.#used; }
    async #take() {
      if (this.#used) throw new TypeError("Body is unusable: Body has already been read");
      this.#used = true;
      return this.#body;
    }
    async text() { return ask("decode", await this.#take(), "utf-8", ""); }
    async json() { return JSON.parse(await this.text()); }
    async bytes() { return unlatin(await this.#take()); }
    async arrayBuffer() { return (await this.bytes()).buffer; }
  }

  const binary = (body) => (body instanceof ArrayBuffer ? new Uint8Array(body)
    : ArrayBuffer.isView(body) ? new Uint8Array(body.buffer, body.byteOffset, body.byteLength) : undefined);

  async function fetch(resource, options = {}) {
    const { method = "GET", headers = {}, body } = options ?? {};
    const request = { url: String(resource?.url ?? resource), method: String(method), headers: Object.fromEntries(new Headers(headers)) };
    const bytes = binary(body);
    if (bytes !== undefined) request.body_b64 = ask("btoa", latin(bytes));
    else if (body !== undefined && body !== null) request.body = String(body);
    const answer = ask("fetch", JSON.stringify(request)), end = answer.indexOf("\n");
    const head = JSON.parse(answer.slice(0, end));
    if (head.error) throw new TypeError(`fetch failed: ${head.error}`);
    return new Response(head.status, head.headers, request.url, answer.slice(end + 1));
  }

  const globals = {
    fetch, Headers, Response,
    console, process, print: out, prompt: readLine, readline: readLine, require: requireFrom("/box"), TextEncoder, TextDecoder,
    setTimeout: (callback, delay, ...values) => setTimer(callback, delay, false, values),
    setInterval: (callback, delay, ...values) => setTimer(callback, delay, true, values),
    setImmediate: (callback, ...values) => setTimer(callback, 0, false, values),
    clearTimeout: (id) => { timers.delete(id); },
    clearInterval: (id) => { timers.delete(id); },
    clearImmediate: (id) => { timers.delete(id); },
    queueMicrotask: (callback) => { Promise.resolve().then(callback); },
    structuredClone: (value) => clone(value, new Map()),
    performance: { now, timeOrigin: 0 },
    btoa: (text) => ask("btoa", text),
    atob: (text) => ask("atob", text),
  };

  function clone(value, seen) {
    if (typeof value === "function" || typeof value === "symbol") throw new TypeError(`${inspect(value)} could not be cloned.`);
    if (typeof value !== "object" || value === null) return value;
    if (seen.has(value)) return seen.get(value);
    if (value instanceof Date) return new Date(value);
    if (value instanceof RegExp) return new RegExp(value.source, value.flags);
    if (ArrayBuffer.isView(value)) return value.slice();
    if (value instanceof Map) { const made = new Map(); seen.set(value, made); value.forEach((v, k) => made.set(clone(k, seen), clone(v, seen))); return made; }
    if (value instanceof Set) { const made = new Set(); seen.set(value, made); value.forEach((v) => made.add(clone(v, seen))); return made; }
    if (value instanceof Error) return Object.assign(new value.constructor(value.message), { stack: value.stack });
    const made = Array.isArray(value) ? [] : {};
    seen.set(value, made);
    for (const key of Object.keys(value)) made[key] = clone(value[key], seen);
    return made;
  }

  for (const [name, value] of Object.entries(globals)) {
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  }
  globalThis.global = globalThis;

  const KEYWORDS = ["async", "await", "break", "case", "catch", "class", "const", "continue", "default", "delete", "do", "else", "export",
    "extends", "false", "finally", "for", "function", "if", "import", "in", "instanceof", "let", "new", "null", "return", "static",
    "super", "switch", "this", "throw", "true", "try", "typeof", "undefined", "var", "void", "while", "yield"];
  let atStart = Reflect.ownKeys(globalThis).length;

  // ---- functions for embedder.py ------------------------------------------------------------------------------------------
  return {
    tick,
    inspect: (value) => inspect(value),
    describe: (error) => (error instanceof Error ? describeError(error) : `Uncaught ${inspect(error)}`),
    facts: (error) => JSON.stringify(error instanceof Error
      ? [String(error.name), String(error.message), describeError(error)] : ["Error", inspect(error), inspect(error)]),
    begin: (argv, env) => { process.argv = JSON.parse(argv); process.env = JSON.parse(env); process.exitCode = undefined; },
    exitCode: () => process.exitCode ?? 0,
    timers: () => timers.size,
    completions: (path, prefix) => {
      const found = walk(JSON.parse(path));
      const all = found === undefined ? [] : JSON.parse(path).length ? names(found.value) : [...names(globalThis), ...KEYWORDS];
      return JSON.stringify([...new Set(all)].filter((name) => name.startsWith(prefix)).sort().slice(0, 500));
    },
    look: (path) => { const found = walk(JSON.parse(path)); return found === undefined ? "" : describeValue(found.value); },
    countNames: () => Reflect.ownKeys(globalThis).length - atStart,
    // Called only where there are host functions; the source is guest/functions/host_object.js.
    offer: (source) => {
      const call = (message) => [JSON.parse(ask("call", JSON.stringify({ ...message, base64: true })))];
      (0, eval)(source)(call, (data) => data.toBase64(), (text) => Uint8Array.fromBase64(text));
      if (globalThis.host !== undefined) atStart = Reflect.ownKeys(globalThis).length;
    },
    moduleNames: (name) => JSON.stringify(Object.keys(modules[name] ?? {}).filter((key) => PLAIN_KEY.test(key))),
  };

  // Follows only names and plain properties: inspection must not run code.
  function walk(path) {
    if (!path.length) return { value: globalThis };
    let value;
    try { value = (0, eval)(path[0]); } catch { return undefined; }
    for (const name of path.slice(1)) {
      let place = Object(value), found;
      while (place !== null && !(found = Object.getOwnPropertyDescriptor(place, name))) place = Object.getPrototypeOf(place);
      if (!found || found.get) return undefined;
      value = found.value;
    }
    return { value };
  }

  function describeValue(value) {
    return typeof value === "function" ? Function.prototype.toString.call(value).slice(0, 2000) : inspect(value);
  }

  function names(object) {
    const found = new Set();
    for (let at = object; at !== null && at !== undefined; at = Object.getPrototypeOf(Object(at))) {
      for (const name of Object.getOwnPropertyNames(Object(at))) if (PLAIN_KEY.test(name)) found.add(name);
    }
    return [...found].sort();
  }
})
