// The program that waits in a jail for one JavaScript or TypeScript cell, and runs it as `node cell.js` would.
//
//   node [flags] node_once.js KIND FD                     reads its order from descriptor FD, which may take hours
//   node [flags] node_once.js KIND - /cell/cell.js ARG…   the order is on the command line
//
// The order is one frame: four bytes of length, then JSON {argv, cwd, env}. Nothing but our own code has run before it
// is read, and the descriptor is closed before the cell starts.
'use strict';

const fs = require('node:fs');
const Module = require('node:module');
const { pathToFileURL } = require('node:url');

const [, , kind, from, ...rest] = process.argv;

function receive(fd, size) {
  const data = Buffer.alloc(size);
  for (let have = 0; have < size; ) {
    const got = fs.readSync(fd, data, have, size - have);
    if (got === 0) process.exit(0); // the gate closed the socket: this process is not needed
    have += got;
  }
  return data;
}

function waitForOrder(fd) {
  const order = JSON.parse(receive(fd, receive(fd, 4).readUInt32BE()));
  fs.closeSync(fd);
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, order.env);
  process.chdir(order.cwd);
  // Node.js reads these at its start, which is over: set what they would have set.
  if (process.env.NODE_USE_ENV_PROXY === '1') require('node:http').setGlobalProxyFromEnv();
  return order.argv;
}

// Node.js loads and compiles lazily what most cells need first: do it now, before the order comes.
async function warmUp() {
  require('node:util').inspect([process.stdout.fd, process.stderr.fd, console.log]);
  await import('data:text/javascript,');
  if (kind === 'typescript') {
    const { emitWarning } = process;
    process.emitWarning = () => {}; // no warning that transform mode is experimental
    require('./typescript_sample.ts');
    process.emitWarning = emitWarning;
  }
}

// Relative imports and packages of a cell are looked up in the work folder.
function resolveFromWorkFolder(cell) {
  const asked = pathToFileURL(cell).href;
  const work = `${process.cwd()}/cell.js`;
  const { resolve } = Module.createRequire(work);
  const parentURL = pathToFileURL(work).href;
  Module.registerHooks({
    resolve(name, context, next) {
      if (context.parentURL !== asked) return next(name, context);
      return context.conditions.includes('require') ? next(resolve(name)) : next(name, { ...context, parentURL });
    },
  });
}

// A cell with top-level await is an ES module; it may use the CommonJS names too.
function giveCommonNames(cell) {
  const names = { require: Module.createRequire(`${process.cwd()}/cell.js`), __filename: cell, __dirname: process.cwd() };
  for (const [name, value] of Object.entries(names)) {
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  }
}

async function main() {
  await warmUp();
  const argv = from === '-' ? rest : waitForOrder(Number(from));
  process.argv = [process.argv[0], ...argv];
  resolveFromWorkFolder(argv[0]);
  giveCommonNames(argv[0]);
  if (process.env.HOST_CALL_SOCKET !== undefined) require('./host.js').install();
  for (const name of Object.keys(require.cache)) delete require.cache[name];
  // Called from the task queue, so that stack traces of a cell do not show this file.
  process.nextTick(Module.runMain);
}

main();
