// The worker of a JavaScript or TypeScript session: Node.js, which the host drives over a channel.
//
//   node [flags] node_session.js KIND ADDON CHANNEL GATE GATE-SCORE WORKER-SCORE       (see node_session.py)
//
// Cells are evaluated as the inspector's REPL mode does it: names can be declared again, await works at the top level,
// and timers and promises of earlier cells go on between cells. Frames are four bytes of length and JSON, as in
// worker_channel.py, and are written by one synchronous call, so that an interrupt cannot split one.
'use strict';

const fs = require('node:fs');
const net = require('node:net');
const vm = require('node:vm');
const util = require('node:util');
const inspector = require('node:inspector');
const Module = require('node:module');
const { createHook } = require('node:async_hooks');
const { setImmediate: afterTicks } = require('node:timers');
const { pathToFileURL } = require('node:url');

const [, , kind, addon, ...told] = process.argv;
const [channel, gate, gateScore, workerScore] = told.map(Number);
const MAX_FRAME = 16 << 20;
const MAX_PARTS = 320_000; // strings, opening brackets and commas of one frame; the host counts them too
const INTERRUPTED = Symbol('interrupted');
const SHOWS = Symbol.for('Jupyter.display');
let native = null;
let freezeProblem = 'no C compiler was found to build the addon for JavaScript checkpoints';
if (addon !== '-') {
  try {
    native = require(addon);
    process.reallyExit = native.exit;
  } catch (error) {
    freezeProblem = `JavaScript sessions have no checkpoints here: ${error.message.split('\n')[0]}`.slice(0, 500);
  }
}
if (process.env.HOST_CALL_SOCKET !== undefined) require('./host.js').install(native);

// -- the channel ------------------------------------------------------------------------------------------------------

let received = Buffer.alloc(0);
let waiting = null;
const pause = new Int32Array(new SharedArrayBuffer(4));

// Returns an upper bound of the strings, opening brackets and commas that a value has as JSON.
function parts(value) {
  if (value === null || typeof value !== 'object') return 1;
  let found = 1;
  for (const item of Array.isArray(value) ? value : Object.values(value)) found += 2 + parts(item);
  return found;
}

function send(message) {
  let text = JSON.stringify(message); // half of a surrogate pair, which the host refuses, becomes a question mark
  if (text.includes('\\ud')) text = text.replace(/\\(?:ud[89a-f]..|.)/g, (escaped) => (escaped.length > 2 ? '?' : escaped));
  const body = Buffer.from(text);
  if (body.length > MAX_FRAME || (body.length > MAX_PARTS && parts(JSON.parse(text)) > MAX_PARTS)) return false;
  const frame = Buffer.allocUnsafe(4 + body.length);
  frame.writeUInt32BE(body.length);
  body.copy(frame, 4);
  for (let sent = 0; sent < frame.length; ) {
    try {
      sent += fs.writeSync(channel, frame, sent);
    } catch (error) {
      if (error.code !== 'EAGAIN') process.reallyExit(125);
      Atomics.wait(pause, 0, 0, 1); // the host has not read yet
    }
  }
  return true;
}

function nextMessage() {
  if (received.length < 4) return null;
  const size = received.readUInt32BE(0);
  if (received.length < 4 + size) return null;
  const message = JSON.parse(received.subarray(4, 4 + size));
  received = received.subarray(4 + size);
  return message;
}

// Waits for the host's answer to one question; blocks the cell meanwhile.
function answerTo(question) {
  const part = Buffer.alloc(1 << 16);
  for (;;) {
    for (let message; (message = nextMessage()) !== null; ) if (message.question === question) return message;
    try {
      const got = fs.readSync(channel, part, 0, part.length, null);
      if (got === 0) process.reallyExit(0);
      received = Buffer.concat([received, part.subarray(0, got)]);
    } catch (error) {
      if (error.code !== 'EAGAIN') process.reallyExit(125);
      Atomics.wait(pause, 0, 0, 1);
    }
  }
}

function drainChannel() {
  const part = Buffer.alloc(1 << 16);
  received = Buffer.alloc(0);
  try {
    while (fs.readSync(channel, part, 0, part.length, null) > 0);
  } catch {} // no more data
}

const socket = new net.Socket({ fd: channel, readable: true, writable: true });
socket.on('data', (data) => {
  received = Buffer.concat([received, data]);
  wake();
});
for (const end of ['end', 'error']) socket.on(end, () => process.reallyExit(0));

function wake() {
  if (waiting === null) return;
  const message = nextMessage();
  if (message !== null) hand(message);
}

function hand(message) {
  const take = waiting;
  waiting = null;
  take?.(message);
}

const receive = () => new Promise((resolve) => ((waiting = resolve), wake()));

// -- what cells can show and ask --------------------------------------------------------------------------------------

let cell = 0;
let running = false;
let questions = 0;

function bundleOf(value) {
  let data = {};
  try {
    if (value !== null && (typeof value === 'object' || typeof value === 'function')) {
      if (typeof value[SHOWS] === 'function') data = { ...value[SHOWS]() };
      else if (typeof value._repr_mimebundle_ === 'function') data = { ...value._repr_mimebundle_() };
      else if (typeof value._repr_html_ === 'function') data = { 'text/html': String(value._repr_html_()) };
    }
  } catch {
    data = {}; // an error in a representation must not fail the cell
  }
  for (const [mime, item] of Object.entries(data)) {
    if (item instanceof Uint8Array) data[mime] = Buffer.from(item).toString('base64');
    else if (typeof item !== 'string' && !mime.endsWith('json')) data[mime] = String(item);
  }
  if (!('text/plain' in data)) data['text/plain'] = util.inspect(value, { depth: 4, maxArrayLength: 100 });
  return data;
}

function show(showKind, data, displayId = null) {
  const waits = running && showKind !== 'result';
  const question = waits ? ++questions : 0;
  const message = { op: 'display', id: cell, question, kind: showKind, data, metadata: {}, display_id: displayId };
  if (!send(message)) send({ ...message, data: { 'text/plain': '<output is too large to be shown>' } });
  if (waits) answerTo(question); // so that later output is not shown before it
}

function display(value, options = {}) {
  const raw = options.raw === true;
  show(options.update ? 'update' : 'display', raw ? value : bundleOf(value), options.display_id ?? null);
}

async function input(prompt = '', password = false) {
  const question = ++questions;
  send({ op: 'input', id: cell, question, prompt: String(prompt).slice(0, 10000), password: Boolean(password) });
  const { value } = await new Promise((resolve) => asked.set(question, resolve));
  if (value === null) throw new Error('no input is available here');
  return value;
}

const asked = new Map();

class Exit {
  constructor(code) {
    this.code = code;
  }
}

process.exit = (code = process.exitCode ?? 0) => {
  throw new Exit(Number(code) & 0xff);
};

const given = { display, input, require: Module.createRequire(`${process.cwd()}/cell.js`) };
for (const [name, value] of Object.entries(given)) {
  Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
}
const usual = new Set(Object.getOwnPropertyNames(globalThis));

// -- evaluation -------------------------------------------------------------------------------------------------------

const session = new inspector.Session();
session.connect();
const post = (method, parameters) =>
  new Promise((resolve, reject) =>
    session.post(method, parameters, (error, result) => (error ? reject(error) : resolve(result))),
  );

// To the inspector a cell is a promise. The inspector crashes if that promise is garbage collected before it is settled
// (a cell may await something that never comes). It is the first promise made by the evaluation; we keep a reference.
const held = new Set();
let first = null;
const promises = createHook({
  init(id, type, trigger, resource) {
    if (type === 'PROMISE') first ??= resource;
  },
});

function evaluate(expression) {
  let settle;
  const found = new Promise((resolve, reject) => (settle = { resolve, reject }));
  found.catch(() => {}); // after an interrupt its result is not used
  const parameters = { expression, replMode: true, awaitPromise: true, objectGroup: 'cell' };
  first = null;
  promises.enable();
  session.post('Runtime.evaluate', parameters, (error, result) => (error ? settle.reject(error) : settle.resolve(result)));
  promises.disable();
  const promise = first;
  held.add(promise);
  found.finally(() => held.delete(promise)).catch(() => {});
  return found;
}

let onInterrupt = null;
process.on('SIGINT', () => onInterrupt?.());
process.on('uncaughtException', (error) => {
  if (!(error instanceof Exit)) process.stderr.write(`Uncaught ${ownLines(util.inspect(error)).join('\n')}\n`);
});
process.on('unhandledRejection', (error) => {
  if (!(error instanceof Exit)) process.stderr.write(`Uncaught (in promise) ${ownLines(util.inspect(error)).join('\n')}\n`);
});

// Static imports are allowed only in modules; in a cell they are rewritten to awaited dynamic imports.
const IMPORT = /((?:^|;)[ \t]*)import\s+(?:([\w$*{}\s,]+?)\s+from\s*)?(["'])([^"'\n]+)\3(?:\s*with\s*\{[^}]*\})?[ \t]*(?=;|$)/gm;
const IMPORT_CALL = /(?<![\w$.])import\s*\(/g;
const LOAD = "globalThis[Symbol.for('sandbox.import')](";

function importsAsAwaits(code) {
  return staticImports(code).replace(IMPORT_CALL, LOAD);
}

Object.defineProperty(globalThis, Symbol.for('sandbox.import'), {
  value: (name, options) => {
    const text = String(name);
    const near = /^[./]/.test(text) ? pathToFileURL(given.require.resolve(text)).href : text;
    return import(near, options);
  },
});

function staticImports(code) {
  return code.replace(IMPORT, (whole, space, what, quote, name) => {
    const loaded = `await import(${JSON.stringify(name)})`;
    if (what === undefined) return `${space}${loaded}`;
    const parts = what.match(/^(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+)|(\{[^}]*\}))?$/);
    if (parts === null) return whole;
    const [, standard, all, some] = parts;
    const names = some?.replace(/([\w$]+)\s+as\s+([\w$]+)/g, '$1: $2') ?? '';
    if (all) return `${space}const ${all} = ${loaded}${standard ? `, ${standard} = ${all}.default` : ''}`;
    const inner = [standard && `default: ${standard}`, names.slice(1, -1).trim()].filter(Boolean).join(', ');
    return `${space}const { ${inner} } = ${loaded}`;
  });
}

function asJavaScript(code) {
  const plain = kind === 'typescript' ? Module.stripTypeScriptTypes(code, { mode: 'transform' }) : code;
  return importsAsAwaits(plain);
}

// A cell such as `{a: 1}` is an object, as in every console.
function asExpression(code) {
  if (!/^\s*\{/.test(code) || /;\s*$/.test(code)) return code;
  try {
    new vm.Script(`(${code.trim()})`);
    return `(${code.trim()})`;
  } catch {
    return code;
  }
}

async function valueOf(remote) {
  if (!remote.objectId) return remote.type === 'undefined' ? undefined : simple(remote);
  const key = Symbol.for('sandbox.value');
  await post('Runtime.callFunctionOn', {
    objectId: remote.objectId,
    functionDeclaration: "function (value) { globalThis[Symbol.for('sandbox.value')] = value; }",
    arguments: [{ objectId: remote.objectId }],
  });
  const value = globalThis[key];
  delete globalThis[key];
  return value;
}

function simple(remote) {
  if (remote.unserializableValue === undefined) return remote.value;
  return vm.runInThisContext(`(${remote.unserializableValue})`);
}

function failure(details) {
  const { exception } = details;
  const text = exception?.description ?? util.inspect(exception?.value ?? details.text);
  const lines = ownLines(text);
  const [first] = lines;
  const name = exception?.className ?? 'Error';
  const named = first.match(/^(?:Uncaught )?([\w$.]*(?:Error|Exception)): ?(.*)$/s);
  return { ename: named?.[1] ?? name, evalue: (named?.[2] ?? first).slice(0, 10000), traceback: lines.slice(0, 200) };
}

// Cuts our own frames off the end of a stack trace.
function ownLines(text) {
  const lines = text.split('\n');
  const end = lines.findIndex((line) => /^\s+at .*(node_session\.js|node:inspector)/.test(line));
  return end < 0 ? lines : lines.slice(0, end);
}

async function run(code) {
  let text;
  try {
    text = `${asExpression(asJavaScript(code))}\n//# sourceURL=cell.js`;
  } catch (error) {
    const lines = String(error.message).split('\n');
    return { status: 'error', exit_code: 1, error: { ename: 'SyntaxError', evalue: lines[0], traceback: lines } };
  }
  const interrupted = new Promise((resolve) => (onInterrupt = () => resolve(INTERRUPTED)));
  try {
    // An interrupt ends an await. If code never returns, the host kills this process and rolls the cell back: V8 could
    // terminate the code, but that would damage the inspector that runs it.
    const result = await Promise.race([evaluate(text), interrupted]);
    if (result === INTERRUPTED) return stopped();
    if (result.exceptionDetails) return await failed(result.exceptionDetails);
    const value = await valueOf(result.result);
    if (value !== undefined) {
      globalThis._ = value;
      show('result', bundleOf(value));
    }
    return { status: 'ok', exit_code: 0 };
  } finally {
    onInterrupt = null;
    session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
  }
}

async function failed(details) {
  if (details.exception?.objectId) {
    const thrown = await valueOf(details.exception);
    if (thrown instanceof Exit) {
      const line = `exit code ${thrown.code}`;
      if (thrown.code === 0) return { status: 'ok', exit_code: 0 };
      return { status: 'error', exit_code: thrown.code, error: { ename: 'Exit', evalue: line, traceback: [line] } };
    }
  }
  return { status: 'error', exit_code: 1, error: failure(details) };
}

function stopped() {
  const error = { ename: 'KeyboardInterrupt', evalue: '', traceback: ['interrupted'] };
  return { status: 'interrupted', exit_code: 130, error };
}

// -- questions about code ---------------------------------------------------------------------------------------------

async function names() {
  const lexical = (await post('Runtime.globalLexicalScopeNames', {})).names;
  return new Set([...lexical, ...Object.getOwnPropertyNames(globalThis).filter((name) => !usual.has(name) && name !== '_')]);
}

// Evaluates an expression only if it has no side effects.
async function look(expression) {
  const found = await post('Runtime.evaluate', { expression, throwOnSideEffect: true, timeout: 500, replMode: true, objectGroup: 'look' });
  return found.exceptionDetails ? null : found.result;
}

async function complete(code, position) {
  const before = code.slice(0, position);
  const [, owner, prefix] = before.match(/(?:([\w$.\[\]'"]+)\.)?([\w$]*)$/);
  let found = [];
  if (owner) {
    const remote = await look(owner);
    const value = remote === null ? undefined : await valueOf(remote);
    for (let level = value === null || value === undefined ? null : Object(value); level; level = Object.getPrototypeOf(level)) {
      found.push(...Object.getOwnPropertyNames(level));
    }
  } else {
    found = [...(await names()), ...Object.getOwnPropertyNames(globalThis), ...KEYWORDS];
  }
  const matches = [...new Set(found)].filter((name) => name.startsWith(prefix) && /^[\w$]+$/.test(name)).sort();
  return { matches: matches.slice(0, 1000), cursor_start: position - prefix.length, cursor_end: position, metadata: {} };
}

const KEYWORDS = `async await break case catch class const continue default delete do else export extends false finally for
  function if import in instanceof let new null return static super switch this throw true try typeof undefined var void
  while with yield`.split(/\s+/);

async function inspect(code, position) {
  const [left] = code.slice(0, position).match(/[\w$.]*$/);
  const [right] = code.slice(position).match(/^[\w$]*/);
  const remote = left + right ? await look(left + right) : null;
  if (remote === null) return {};
  const value = await valueOf(remote);
  const text = typeof value === 'function' ? Function.prototype.toString.call(value) : util.inspect(value, { depth: 2 });
  return { data: { 'text/plain': `${remote.className ?? remote.type}\n${text.slice(0, 10000)}` } };
}

function isComplete(code) {
  try {
    new vm.Script(`(async () => {\n${asJavaScript(code)}\n})`);
    return { status: 'complete', indent: '' };
  } catch (error) {
    try {
      new vm.Script(code);
    } catch (plain) {
      const open = /Unexpected end of input|Unterminated template|missing \) after|Expected.*got '<eof>'/;
      if (open.test(plain.message) || open.test(error.message)) return { status: 'incomplete', indent: '  ' };
    }
    return { status: 'invalid', indent: '' };
  }
}

async function ask(message) {
  try {
    if (message.what === 'complete') return await complete(message.code, message.pos);
    if (message.what === 'inspect') return await inspect(message.code, message.pos);
    return isComplete(message.code);
  } catch {
    return {};
  } finally {
    session.post('Runtime.releaseObjectGroup', { objectGroup: 'look' });
  }
}

// -- checkpoints ------------------------------------------------------------------------------------------------------

async function checkpoint(number, sealed) {
  const threads = process.getActiveResourcesInfo().filter((name) => name === 'Worker').length;
  const pid = native === null ? -1 : native.freeze(gate, gateScore, workerScore, Number(sealed));
  if (pid === 0) {
    drainChannel();
    Object.defineProperty(process, 'pid', { value: native.pid(), enumerable: true, configurable: true });
    send({ op: 'restored', cell: number, names: (await names()).size, threads });
  } else {
    const reason = pid > 0 ? '' : native === null ? freezeProblem : util.getSystemErrorName(pid);
    send({ op: 'frozen', cell: number, pid: Math.max(0, pid), threads, reason });
  }
}

// -- the loop ---------------------------------------------------------------------------------------------------------

async function serve() {
  await post('Runtime.enable', {});
  send({ op: 'ready', pid: process.pid, names: 0 });
  for (;;) {
    const message = await receive();
    if (message.op === 'run') {
      cell = message.id;
      running = true;
      const done = cellDone(message);
      // Answers to input() arrive while the cell runs.
      let ended = false;
      done.then(() => {
        ended = true;
        hand({ op: 'none' });
      });
      while (!ended) {
        const answer = await receive();
        if (answer.op === 'input') asked.get(answer.question)?.(answer);
        asked.delete(answer.question);
      }
      // The checkpoint of this cell follows without another order.
      if (message.checkpoint) await checkpoint(message.checkpoint.cell, message.checkpoint.sealed);
    } else if (message.op === 'freeze') {
      await checkpoint(message.cell, message.sealed);
    } else if (message.op === 'ask') {
      const answer = await ask(message);
      if (!send({ op: 'answer', id: message.id, answer })) send({ op: 'answer', id: message.id, answer: {} });
    }
  }
}

async function cellDone(message) {
  send({ op: 'began', id: message.id });
  let end;
  try {
    end = await run(message.code);
  } catch (error) {
    end = { status: 'error', exit_code: 1, error: { ename: 'Error', evalue: String(error), traceback: [String(error)] } };
  }
  // Unhandled rejections are reported after the promise jobs of this turn, and belong to this cell.
  await new Promise((told) => afterTicks(told));
  running = false;
  send({ op: 'done', id: message.id, ...end });
}

serve();
