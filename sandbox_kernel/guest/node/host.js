// Host functions in JavaScript: host.search("boats", {limit: 3}) calls the host and returns the result.
//
// A run has a connection of its own (HOST_LINE). A session opens one in each cell, with the addon that makes checkpoints:
// a checkpoint must not share one with the cell that is rolled back. Without the addon it calls through the command `host`,
// which starts a process for each call.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const vm = require('node:vm');
const { spawnSync } = require('node:child_process');

const lost = (message) => ({ error: { type: 'ConnectionLost', message } });
const CLOSED = 'the host closed the connection; a limit of its functions is reached';
const INTERRUPTED = { error: { type: 'KeyboardInterrupt', message: '' } };
const BREAK = Buffer.from('\n');

// How bytes are written in a message: raw after its JSON, or as base64 where there is text alone.
const RAW = [(bytes, raw) => raw.push(bytes) && bytes.length, (size, rest) => rest.take(size)];
const BASE64 = [(bytes) => Buffer.from(bytes).toString('base64'), (text) => new Uint8Array(Buffer.from(text, 'base64'))];

// The bytes that follow the JSON of an answer; they are taken in the order of the values.
class RawBytes {
  constructor(data) {
    Object.assign(this, { data, at: 0 });
  }

  take(size) {
    this.at += size;
    return new Uint8Array(this.data.subarray(this.at - size, this.at));
  }
}

function parsed(body) {
  const end = body.indexOf(10);
  return end < 0 ? [JSON.parse(body)] : [JSON.parse(body.subarray(0, end)), new RawBytes(body.subarray(end + 1))];
}

function framed(message, raw) {
  const head = Buffer.from(JSON.stringify(message));
  const parts = raw.length ? [head, BREAK, ...raw] : [head];
  const size = Buffer.allocUnsafe(4);
  size.writeUInt32BE(parts.reduce((sum, part) => sum + part.length, 0));
  return Buffer.concat([size, ...parts]);
}

// Returns false when the host has closed the connection; the reason may be there to be read.
function write(fd, frame) {
  try {
    for (let sent = 0; sent < frame.length; ) sent += fs.writeSync(fd, frame, sent);
  } catch (error) {
    if (error.code !== 'EPIPE') throw error;
    return false;
  }
  return true;
}

function readSome(fd, into, at) {
  try {
    return fs.readSync(fd, into, at, into.length - at, null);
  } catch (error) {
    if (error.code !== 'ECONNRESET') throw error; // closed before it had read all
    return 0;
  }
}

// Returns the next answer; null when the host has closed the connection.
function read(fd) {
  let held = Buffer.allocUnsafe(1 << 16);
  let have = 0;
  for (let size = 4; have < size; ) {
    const got = readSome(fd, held, have);
    if (got === 0) return null;
    have += got;
    if (have < 4) continue;
    size = 4 + held.readUInt32BE();
    if (size > held.length) held = Buffer.concat([held.subarray(0, have)], size);
  }
  return held.subarray(4, have);
}

function overLine(fd, message, raw) {
  write(fd, framed(message, raw));
  const answer = read(fd);
  return answer ? parsed(answer) : [lost(CLOSED)];
}

// Calls of a session: `addon` opens a connection, and waits for an answer in such a way that an interrupt ends it.
class SessionLine {
  constructor(addon, callSocket) {
    Object.assign(this, { addon, callSocket, fd: -1, pid: 0 });
  }

  ask(message, raw) {
    const frame = framed(message, raw);
    const mine = this.fd >= 0 && this.pid === this.addon.pid();
    if (!mine) this.open();
    const sent = write(this.fd, frame);
    let answer = this.answer();
    if (answer === null && !sent && mine) {
      // The host has closed this connection between two cells.
      this.open();
      write(this.fd, frame);
      answer = this.answer();
    }
    if (answer === undefined) return [INTERRUPTED];
    return answer === null ? [lost(CLOSED)] : parsed(answer);
  }

  // Undefined after an interrupt: nobody knows then what is still on the way, so the connection ends.
  answer() {
    const answer = this.addon.ready(this.fd) ? read(this.fd) : undefined;
    if (!answer) this.close();
    return answer;
  }

  open() {
    this.close();
    this.fd = this.addon.line(this.callSocket);
    if (this.fd < 0) throw new Error('the call did not reach the host');
    this.pid = this.addon.pid();
  }

  close() {
    if (this.fd >= 0) fs.closeSync(this.fd);
    this.fd = -1;
  }
}

function overCommand(callSocket, message) {
  const done = spawnSync('host', ['--json'], {
    input: JSON.stringify(message), // the command asks for base64
    stdio: ['pipe', 'pipe', 'inherit', callSocket],
    env: { ...process.env, HOST_CALL_SOCKET: '3' },
    maxBuffer: 1 << 28,
  });
  if (done.error) throw done.error;
  return [done.status === 0 ? JSON.parse(done.stdout) : lost('the call did not reach the host')];
}

// Makes `host` a global name, if this program may call host functions. `addon` is that of a session, if it has one.
function install(addon = null) {
  const { HOST_LINE: line, HOST_CALL_SOCKET: callSocket } = process.env;
  if (callSocket === undefined) return;
  const file = path.join(__dirname, '..', 'functions', 'host_object.js');
  const make = vm.runInThisContext(fs.readFileSync(file, 'utf8'), { filename: 'host' });
  if (line) return make((message, raw) => overLine(Number(line), message, raw), ...RAW);
  if (addon === null) return make((message) => overCommand(Number(callSocket), message), ...BASE64);
  const session = new SessionLine(addon, Number(callSocket));
  make((message, raw) => session.ask(message, raw), ...RAW);
}

module.exports = { install };
