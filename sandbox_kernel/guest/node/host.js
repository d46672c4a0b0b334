// Host functions in JavaScript: host.search("boats", {limit: 3}) calls the host and returns the result.
//
// A run has a connection of its own (HOST_LINE). A session calls through the command `host`, which opens a new connection
// for each call: a checkpoint must not share one with the cell that is rolled back.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const vm = require('node:vm');
const { spawnSync } = require('node:child_process');

const lost = (message) => ({ error: { type: 'ConnectionLost', message } });

function readExactly(fd, size) {
  const data = Buffer.alloc(size);
  for (let have = 0; have < size; ) {
    const got = fs.readSync(fd, data, have, size - have, null);
    if (got === 0) return null;
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
  const size = readExactly(fd, 4);
  const answer = size && readExactly(fd, size.readUInt32BE());
  return answer ? JSON.parse(answer) : lost('the host closed the connection; a limit of its functions is reached');
}

function overCommand(hatch, message) {
  const done = spawnSync('host', ['--json'], {
    input: JSON.stringify(message),
    stdio: ['pipe', 'pipe', 'inherit', hatch],
    env: { ...process.env, HOST_HATCH: '3' },
    maxBuffer: 1 << 28,
  });
  if (done.error) throw done.error;
  if (done.status !== 0) return lost('the call did not reach the host');
  return JSON.parse(done.stdout);
}

// Makes `host` a global name, if this program may call host functions.
function install() {
  const { HOST_LINE: line, HOST_HATCH: hatch } = process.env;
  if (hatch === undefined) return;
  const ask = line ? (message) => overLine(Number(line), message) : (message) => overCommand(Number(hatch), message);
  const file = path.join(__dirname, '..', 'functions', 'host_object.js');
  const make = vm.runInThisContext(fs.readFileSync(file, 'utf8'), { filename: 'host' });
  make(ask, (bytes) => Buffer.from(bytes).toString('base64'), (text) => new Uint8Array(Buffer.from(text, 'base64')));
}

module.exports = { install };
