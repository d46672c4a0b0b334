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
    if (got === 0) process.exit(0); // nobody needs us any more
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
  // Read at the start by others; we have started.
  if (process.env.NODE_USE_ENV_PROXY === '1') require('node:http').setGlobalProxyFromEnv();
  return order.argv;
}

// What the first line of most cells needs is loaded and compiled lazily by Node.js: do it while nobody waits.
async function warmUp() {
  require('node:util').inspect([process.stdout.fd, process.stderr.fd, console.log]);
  await import('data:text/javascript,');
  if (kind === 'typescript') {
    const { emitWarning } = process;
    process.emitWarning = () => {}; // transform mode works; that its name may change is no news for a cell
    require('./typescript_sample.ts');
    process.emitWarning = emitWarning;
  }
}

// What a cell asks for by a relative name, or by a package's, is looked for in the work folder.
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

// A cell that awaits at its top level is an ES module; it may use the names of CommonJS all the same.
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
  for (const name of Object.keys(require.cache)) delete require.cache[name];
  // Called from the queue, so that no stack trace of a cell shows this file.
  process.nextTick(Module.runMain);
}

main();
