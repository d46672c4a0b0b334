// Runs shell scripts in the JavaScript engine with just-bash, which is in the image. /box and mounts are real folders.
(function (host, bash) {
  "use strict";
  const fs = require("fs");
  const SHELL = Symbol.for("sandbox.shell");

  // ---- the folders of the host, in just-bash's interface for file systems --------------------------------------------
  const kindOf = (stats) => ({
    isFile: stats.isFile(), isDirectory: stats.isDirectory(), isSymbolicLink: stats.isSymbolicLink(),
    mode: stats.mode & 0o7777, size: stats.size, mtime: stats.mtime, dev: stats.dev, ino: stats.ino,
  });
  const bytesOf = (content, encoding) => {
    if (typeof content !== "string") return content;
    if (encoding === "binary" || encoding === "latin1") return Uint8Array.from(content, (c) => c.charCodeAt(0));
    if (encoding === "base64") return Uint8Array.from(atob(content), (c) => c.charCodeAt(0));
    if (encoding === "hex") return Uint8Array.from(content.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
    return new TextEncoder().encode(content);
  };
  const textOf = (bytes, encoding) => {
    if (encoding === "binary" || encoding === "latin1") return latin(bytes);
    if (encoding === "base64") return btoa(latin(bytes));
    if (encoding === "hex") return [...bytes].map((b) => b.toString(16).padStart(2, "0")).join("");
    return new TextDecoder().decode(bytes);
  };
  const latin = (bytes) => {
    let text = "";
    for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode.apply(null, bytes.subarray(i, i + 8192));
    return text;
  };
  const encodingOf = (options) => (typeof options === "string" ? options : options?.encoding);

  class HostFolder {
    constructor(root) { this.root = root; }
    #at(path) { return this.root + (path === "/" ? "" : path); }
    async readFile(path, options) { return textOf(fs.readFileSync(this.#at(path)), encodingOf(options)); }
    async readFileBytes(path) { return latin(fs.readFileSync(this.#at(path))); }
    async readFileBuffer(path) { return fs.readFileSync(this.#at(path)); }
    async writeFile(path, content, options) { this.#parent(path); fs.writeFileSync(this.#at(path), bytesOf(content, encodingOf(options))); }
    async appendFile(path, content, options) { this.#parent(path); fs.appendFileSync(this.#at(path), bytesOf(content, encodingOf(options))); }
    async exists(path) { return fs.existsSync(this.#at(path)); }
    async stat(path) { return kindOf(fs.statSync(this.#at(path))); }
    async lstat(path) { return kindOf(fs.lstatSync(this.#at(path))); }
    async mkdir(path, options) { fs.mkdirSync(this.#at(path), options); }
    async readdir(path) { return fs.readdirSync(this.#at(path)); }
    async readdirWithFileTypes(path) {
      return fs.readdirSync(this.#at(path)).map((name) => {
        const { isFile, isDirectory, isSymbolicLink } = kindOf(fs.lstatSync(`${this.#at(path)}/${name}`));
        return { name, isFile, isDirectory, isSymbolicLink };
      });
    }
    async rm(path, options) {
      if (!options?.recursive && fs.existsSync(this.#at(path)) && fs.lstatSync(this.#at(path)).isDirectory()) fs.rmdirSync(this.#at(path));
      else fs.rmSync(this.#at(path), options);
    }
    async cp(from, to, options) {
      if (!fs.statSync(this.#at(from)).isDirectory()) { fs.copyFileSync(this.#at(from), this.#at(to)); return; }
      if (!options?.recursive) throw new Error(`EISDIR: is a directory, '${from}'`);
      fs.mkdirSync(this.#at(to), { recursive: true });
      for (const name of fs.readdirSync(this.#at(from))) await this.cp(`${from}/${name}`, `${to}/${name}`, options);
    }
    async mv(from, to) { fs.renameSync(this.#at(from), this.#at(to)); }
    async chmod(path, mode) { fs.chmodSync(this.#at(path), mode); }
    async symlink(target, path) { fs.symlinkSync(target, this.#at(path)); }
    async link(from, to) { fs.copyFileSync(this.#at(from), this.#at(to)); }
    async readlink(path) { return fs.readlinkSync(this.#at(path)); }
    async realpath(path) { return path; }
    async utimes(path, _accessed, modified) { fs.utimesSync(this.#at(path), modified.getTime()); }
    resolvePath(base, path) { return require("path").normalize(path[0] === "/" ? path : `${base}/${path}`); }
    getAllPaths() {
      const found = [];
      const walk = (path) => {
        found.push(path || "/");
        for (const name of fs.readdirSync(this.#at(path || "/"))) {
          if (fs.lstatSync(`${this.#at(path || "/")}/${name}`).isDirectory()) walk(`${path}/${name}`);
          else found.push(`${path}/${name}`);
        }
      };
      walk("");
      return found;
    }
    #parent(path) {
      const above = path.slice(0, path.lastIndexOf("/"));
      if (above && !fs.existsSync(this.#at(above))) throw new Error(`ENOENT: no such file or directory, open '${path}'`);
    }
  }

  const good = (stdout = "", stdoutKind = "text") => ({ stdout, stdoutKind, stderr: "", exitCode: 0 });
  const bad = (message, exitCode = 1) => ({ stdout: "", stderr: `${message}\n`, exitCode });

  // ---- trap ------------------------------------------------------------------------------------------------------------
  const SIGNALS = new Set(["EXIT", "INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "PIPE", "ALRM"]);
  const numbers = { 0: "EXIT", 1: "HUP", 2: "INT", 3: "QUIT", 13: "PIPE", 14: "ALRM", 15: "TERM" };
  const traps = new Map();
  async function trap(args) {
    const words = args[0] === "--" ? args.slice(1) : args;
    if (!words.length || words[0] === "-p") {
      return good([...traps].map(([name, code]) => `trap -- '${code.replaceAll("'", "'\\''")}' ${name === "EXIT" ? name : `SIG${name}`}\n`).join(""));
    }
    const [code, ...names] = words.length === 1 ? ["-", words[0]] : words;
    for (const word of names) {
      const name = numbers[word] ?? word.toUpperCase().replace(/^SIG/, "");
      if (!SIGNALS.has(name)) return bad(`bash: trap: ${word}: not supported here; EXIT and the usual signals are`);
      if (code === "-") traps.delete(name); else traps.set(name, code);
    }
    return good();
  }

  // ---- host: calls host functions, as guest/functions/host_command.py does --------------------------------------------
  async function callHost([name, ...words]) {
    if (globalThis.host === undefined) return bad("bash: host: command not found", 127);
    if (name === undefined) return bad("host: usage: host FUNCTION [ARGUMENT | NAME=VALUE] ...", 2);
    // JSON has no bytes, and not every number.
    const plain = (_, value) =>
      value instanceof Uint8Array ? { $bytes: btoa(latin(value)) }
      : typeof value === "number" && !Number.isFinite(value) ? { $float: String(value).toLowerCase().replace("infinity", "inf") }
      : value;
    const text = (value) => (typeof value === "string" ? value : JSON.stringify(value, plain));
    const shown = (value) => (value === null ? "" : value instanceof Uint8Array ? latin(value) : `${text(value)}\n`);
    try {
      const result = globalThis.host[Symbol.for("host.words")](name, words);
      const all = typeof result?.next === "function" ? [...result] : [result];
      return all.some((item) => item instanceof Uint8Array) ? good(all.map(shown).join(""), "bytes") : good(all.map(shown).join(""));
    } catch (error) {
      return bad(`host: ${error.message}`);
    }
  }

  // ---- running a script ------------------------------------------------------------------------------------------------
  const many = 1e9;
  const limits = Object.fromEntries([
    "maxCommandCount", "maxLoopIterations", "maxAwkIterations", "maxSedIterations", "maxJqIterations", "maxWorkUnits",
    "maxOutputSize", "maxStringLength", "maxExecutionTimeMs", "maxGlobOperations", "maxArrayElements", "maxInputBytes",
    "maxTraversalEntries", "maxTraversalWork", "maxQueryElements", "maxLiveBytes",
  ].map((name) => [name, many]));
  limits.maxCallDepth = 200; // deeper recursion would overflow the engine's own stack

  const say = (text) => async () => ({ stdout: text, stderr: "", exitCode: 0 });
  const ours = [
    bash.defineCommand("whoami", say("sandbox\n")),
    bash.defineCommand("hostname", say("sandbox\n")),
    bash.defineCommand("id", async (args) => say(args.includes("-un") ? "sandbox\n" : args.includes("-u") ? "1000\n"
      : "uid=1000(sandbox) gid=1000(sandbox) groups=1000(sandbox)\n")()),
    bash.defineCommand("trap", trap),
    bash.defineCommand("host", callHost),
    bash.defineCommand("uname", async (args) => say(args.includes("-a") ? "WASI sandbox wasm32\n" : "WASI\n")()),
  ];

  const absent = ["python", "python3", "html-to-markdown"]; // just-bash lists them, but its bundle for browsers lacks them
  const known = new Set([...bash.getCommandNames(), ...ours.map((command) => command.name), "which"]);
  for (const name of [...absent, "trap"]) known.delete(name);
  ours.push(bash.defineCommand("which", async (args) => {
    const found = args.filter((name) => known.has(name));
    return { stdout: found.map((name) => `/usr/bin/${name}\n`).join(""), stderr: "", exitCode: found.length === args.length ? 0 : 1 };
  }));

  // curl's network: the host fetches, under the sandbox's policy, and follows redirects itself.
  const web = globalThis.fetch;
  async function request(url, { method, headers, body } = {}) {
    const answer = await web(url, { method, headers, body });
    const found = Object.fromEntries(answer.headers);
    return { status: answer.status, statusText: "", headers: found, body: await answer.bytes(), url };
  }

  async function makeShell() {
    const folders = JSON.parse(host("folders").slice(1)).filter((path) => path !== "/cell");
    const mounts = folders.map((path) => ({ mountPoint: path, filesystem: new HostFolder(path) }));
    const base = new bash.InMemoryFs();
    // No /bin: if it exists, just-bash finds only commands that are files in it.
    for (const path of ["/dev", "/tmp"]) await base.mkdir(path, { recursive: true });
    await base.writeFile("/dev/null", "");
    const home = { HOME: "/box", PWD: "/box", PATH: "/usr/bin:/bin", USER: "sandbox", LOGNAME: "sandbox", HOSTNAME: "sandbox", TMPDIR: "/tmp" };
    return new bash.Bash({
      fs: new bash.MountableFs({ base, mounts }),
      cwd: "/box",
      env: { ...home, ...process.env },
      executionLimits: limits,
      customCommands: ours,
      fetch: request,
      defenseInDepth: false,
      processInfo: { pid: 1, ppid: 0, uid: 1000, gid: 1000 },
      sleep: (ms) => new Promise((done) => { setTimeout(done, ms); }),
    });
  }

  // The output of the outermost script is written after each statement; that of inner scripts goes to their caller.
  let outermost;
  let state;
  const watch = {
    state(made) { state ??= made; },
    made(part) { if (outermost === undefined && part.site === "script") outermost = part; },
    append(part, stream, text, kind) {
      if (part !== outermost || !text) return;
      host("print", stream === "stdout" ? "1" : "2", kind === "bytes" ? "bytes" : "text", kind === "bytes" ? text : text.toWellFormed());
    },
  };

  async function run(script, args) {
    globalThis[SHELL] = watch;
    const shell = await makeShell();
    outermost = undefined;
    // Arguments become $1, $2, …: quoted, so that nothing in them is read as code.
    const given = args.map((arg) => `'${arg.replaceAll("'", "'\\''")}'`).join(" ");
    const source = args.length ? `set -- ${given}\n${script}` : script;
    let result = await shell.exec(source, { rawScript: true, stdin: host("stdin").slice(1), stdinKind: "bytes" });
    result = await atExit(shell, result);
    if (outermost === undefined) {
      // The script could not be parsed.
      process.stdout.write(result.stdout);
      process.stderr.write(result.stderr);
    }
    process.exitCode = result.exitCode & 0xff;
  }

  // The EXIT handler runs in the state in which the script ended: with its variables, functions and folder.
  const WENT_ON = 199; // marks a handler that ran to its end; if the handler exits by itself, its own code counts
  async function atExit(shell, result) {
    const handler = traps.get("EXIT");
    traps.clear();
    if (!handler || state === undefined) return result;
    const { env, arrays, cwd, functions } = state;
    Object.assign(shell.state, { env, arrays, cwd, functions });
    outermost = undefined;
    const end = await shell.exec(`(exit ${result.exitCode})\n${handler}\nexit ${WENT_ON}`, { rawScript: true });
    return { ...result, exitCode: end.exitCode === WENT_ON ? result.exitCode : end.exitCode };
  }

  let pending;
  return {
    shell(source) {
      pending = source;
      globalThis[SHELL] = () => run(pending, process.argv.slice(2));
      return JSON.stringify({ source: 'await globalThis[Symbol.for("sandbox.shell")]()' });
    },
    commands: () => JSON.stringify(bash.getCommandNames()),
  };
})
