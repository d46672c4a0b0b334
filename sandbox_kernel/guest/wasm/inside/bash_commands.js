// Commands that just-bash lacks without Node.js: tar, xxd, node, shuf and yes; host; and the builtin trap.
(function () {
  "use strict";
  globalThis[Symbol.for("sandbox.libraries")]["sandbox-commands"] = function (zlib) {
    const good = (stdout = "", stdoutKind = "text") => ({ stdout, stdoutKind, stderr: "", exitCode: 0 });
    const bad = (message, exitCode = 1) => ({ stdout: "", stderr: `${message}\n`, exitCode });
    const latin = (bytes) => {
      let text = "";
      for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode.apply(null, bytes.subarray(i, i + 8192));
      return text;
    };
    const bytesOf = (text) => Uint8Array.from(text, (c) => c.charCodeAt(0));
    const textOf = (bytes) => new TextDecoder().decode(bytes);
    const read = (context, path) => (path === "-" ? bytesOf(context.stdin) : context.fs.readFileBuffer(context.fs.resolvePath(context.cwd, path)));
    const short = (error) => String(error?.message ?? error).replace(/^E[A-Z]+: /, "").split(",")[0];

    // ---- tar -------------------------------------------------------------------------------------------------------------
    const BLOCK = 512;
    function header(name, size, mode, kind, modified, link) {
      const block = new Uint8Array(BLOCK);
      const put = (at, bytes) => block.set(bytes, at);
      const octal = (at, width, value) => put(at, bytesOf(value.toString(8).padStart(width - 1, "0")));
      let [prefix, rest] = ["", new TextEncoder().encode(name)];
      if (rest.length > 100) {
        const cut = name.lastIndexOf("/", 154);
        if (cut < 1 || name.length - cut - 1 > 100) throw new Error(`${name}: name is too long`);
        [prefix, rest] = [name.slice(0, cut), new TextEncoder().encode(name.slice(cut + 1))];
      }
      put(0, rest);
      octal(100, 8, mode & 0o7777); octal(108, 8, 1000); octal(116, 8, 1000); octal(124, 12, size); octal(136, 12, modified);
      put(148, bytesOf("        ")); put(156, bytesOf(kind)); put(157, new TextEncoder().encode(link).subarray(0, 100));
      put(257, bytesOf("ustar\x0000")); put(265, bytesOf("sandbox")); put(297, bytesOf("sandbox")); put(345, new TextEncoder().encode(prefix));
      put(148, bytesOf(`${block.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, "0")}\0 `));
      return block;
    }

    async function pack(context, names, folder, told) {
      const parts = [];
      const add = async (name) => {
        const path = context.fs.resolvePath(folder, name);
        const found = await context.fs.lstat(path);
        const modified = Math.floor((found.mtime?.getTime() ?? 0) / 1000);
        const inside = name.replace(/^\/+/, "").replace(/\/+$/, "");
        told.push(found.isDirectory ? `${inside}/` : inside);
        if (found.isSymbolicLink) parts.push(header(inside, 0, 0o777, "2", modified, await context.fs.readlink(path)));
        else if (found.isDirectory) {
          parts.push(header(`${inside}/`, 0, found.mode, "5", modified, ""));
          for (const child of (await context.fs.readdir(path)).sort()) await add(`${inside}/${child}`);
        } else {
          const data = await context.fs.readFileBuffer(path);
          parts.push(header(inside, data.length, found.mode, "0", modified, ""), data, new Uint8Array(-data.length & (BLOCK - 1)));
        }
      };
      for (const name of names) await add(name);
      parts.push(new Uint8Array(2 * BLOCK));
      const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
      let at = 0;
      for (const part of parts) { whole.set(part, at); at += part.length; }
      return whole;
    }

    function* members(data) {
      let long;
      for (let at = 0; at + BLOCK <= data.length && data[at] !== 0;) {
        const field = (from, size) => { const raw = data.subarray(at + from, at + from + size); const end = raw.indexOf(0); return textOf(end < 0 ? raw : raw.subarray(0, end)); };
        const size = Number.parseInt(field(124, 12).trim() || "0", 8);
        const body = data.subarray(at + BLOCK, at + BLOCK + size);
        if (!(size >= 0) || body.length < size) throw new Error("unexpected end of archive");
        const kind = String.fromCharCode(data[at + 156]);
        const prefix = field(257, 5) === "ustar" ? field(345, 155) : "";
        const name = long ?? (prefix ? `${prefix}/${field(0, 100)}` : field(0, 100));
        long = kind === "L" ? textOf(body).replace(/\0.*$/s, "") : undefined;
        if (kind !== "L" && kind !== "x" && kind !== "g") yield { name, kind, body, mode: Number.parseInt(field(100, 8).trim() || "644", 8), link: field(157, 100) };
        at += BLOCK + size + (-size & (BLOCK - 1));
      }
    }

    async function unpack(context, data, folder, wanted, told) {
      for (const { name, kind, body, mode, link } of members(data)) {
        const clean = name.replace(/^\/+/, "").replace(/\/+$/, "");
        if (wanted.length && !wanted.some((one) => clean === one.replace(/\/+$/, "") || clean.startsWith(`${one.replace(/\/+$/, "")}/`))) continue;
        if (clean.split("/").includes("..")) throw new Error(`${name}: Member name contains '..'`);
        told.push(name);
        const path = context.fs.resolvePath(folder, clean);
        const above = path.slice(0, path.lastIndexOf("/"));
        if (above) await context.fs.mkdir(above, { recursive: true });
        if (kind === "5") await context.fs.mkdir(path, { recursive: true });
        else if (kind === "2") await context.fs.symlink(link, path);
        else if (kind === "0" || kind === "\0") { await context.fs.writeFile(path, body); await context.fs.chmod(path, mode & 0o777); }
      }
    }

    async function tar(args, context) {
      const flags = new Set();
      const names = [];
      let [file, folder] = ["-", context.cwd];
      const value = { f: (text) => { file = text; }, C: (text) => { folder = context.fs.resolvePath(context.cwd, text); } };
      const long = { create: "c", extract: "x", get: "x", list: "t", verbose: "v", gzip: "z", file: "f", directory: "C" };
      for (let i = 0; i < args.length; i++) {
        const arg = args[i];
        if (arg.startsWith("--")) {
          const [name, given] = arg.slice(2).split(/=(.*)/s);
          const letter = long[name];
          if (letter === undefined) return bad(`tar: unrecognized option '${arg}'`, 64);
          if (value[letter]) value[letter](given ?? args[++i] ?? ""); else flags.add(letter);
        } else if ((arg.startsWith("-") && arg.length > 1) || i === 0) {
          const letters = arg.replace(/^-/, "");
          for (let j = 0; j < letters.length; j++) {
            if (!"cxtvzfCp".includes(letters[j])) return bad(`tar: invalid option -- '${letters[j]}'`, 64);
            if (!value[letters[j]]) { flags.add(letters[j]); continue; }
            // In the old style (tar czf a.tar) the values are the words that follow, in order.
            const rest = arg.startsWith("-") ? letters.slice(j + 1) : "";
            value[letters[j]](rest || (args[++i] ?? ""));
            if (rest) break;
          }
        } else names.push(arg);
      }
      const told = [];
      const shown = () => told.map((name) => `${name}\n`).join("");
      try {
        if (flags.has("c")) {
          if (!names.length) return bad("tar: Cowardly refusing to create an empty archive", 2);
          let data = await pack(context, names, folder, told);
          if (flags.has("z") || /\.t?gz$/.test(file)) data = zlib.gzipSync(data);
          if (file === "-") return { ...good(latin(data), "bytes"), stderr: flags.has("v") ? shown() : "" };
          await context.fs.writeFile(context.fs.resolvePath(context.cwd, file), data);
          return good(flags.has("v") ? shown() : "");
        }
        if (!flags.has("x") && !flags.has("t")) return bad("tar: You must specify one of the options -c, -t, -x", 2);
        let data = await read(context, file);
        if (data[0] === 0x1f && data[1] === 0x8b) data = zlib.gunzipSync(data);
        if (data.length < BLOCK || textOf(data.subarray(257, 262)) !== "ustar") return bad("tar: This does not look like a tar archive", 2);
        if (flags.has("t")) return good([...members(data)].map(({ name }) => `${name}\n`).join(""));
        await unpack(context, data, folder, names, told);
        return good(flags.has("v") ? shown() : "");
      } catch (error) {
        return { ...bad(`tar: ${short(error)}`, 2), stdout: flags.has("v") ? shown() : "" };
      }
    }

    // ---- xxd, shuf, yes --------------------------------------------------------------------------------------------------
    async function xxd(args, context) {
      let [columns, plain, reverse, file] = [0, false, false, "-"];
      for (let i = 0; i < args.length; i++) {
        if (args[i] === "-r") reverse = true;
        else if (args[i] === "-p") plain = true;
        else if (args[i] === "-c") columns = Number(args[++i]);
        else if (args[i].startsWith("-") && args[i] !== "-") return bad(`xxd: invalid option '${args[i]}'`);
        else file = args[i];
      }
      let data;
      try { data = await read(context, file); } catch (error) { return bad(`xxd: ${file}: ${short(error)}`, 2); }
      const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0"));
      if (reverse) {
        const digits = latin(data).split("\n").map((line) => (plain ? line : line.replace(/^[0-9a-f]+:/i, "").split("  ")[0]).replace(/\s+/g, "")).join("");
        return good((digits.match(/[0-9a-f]{2}/gi) ?? []).map((pair) => String.fromCharCode(Number.parseInt(pair, 16))).join(""), "bytes");
      }
      const width = columns > 0 ? columns : plain ? 30 : 16;
      let text = "";
      for (let at = 0; at < data.length; at += width) {
        const row = data.subarray(at, at + width);
        if (plain) { text += `${hex(row).join("")}\n`; continue; }
        const pairs = hex(row).join("").match(/.{1,4}/g).join(" ").padEnd(Math.ceil(width / 2) * 5 - 1);
        text += `${at.toString(16).padStart(8, "0")}: ${pairs}  ${latin(row).replace(/[^\x20-\x7e]/g, ".")}\n`;
      }
      return good(text);
    }

    async function shuf(args, context) {
      let [most, file, lines] = [Infinity, "-", undefined];
      for (let i = 0; i < args.length; i++) {
        const count = /^-n(\d*)$/.exec(args[i]);
        if (count) most = Number(count[1] || args[++i]);
        else if (args[i] === "-e") { lines = args.slice(i + 1); break; }
        else if (args[i] === "-i") { const [low, high] = args[++i].split("-").map(Number); lines = Array.from({ length: high - low + 1 }, (_, k) => String(low + k)); }
        else file = args[i];
      }
      if (lines === undefined) {
        try { lines = textOf(await read(context, file)).replace(/\n$/, "").split("\n"); } catch (error) { return bad(`shuf: ${file}: ${short(error)}`); }
      }
      for (let i = lines.length - 1; i > 0; i--) { const j = Math.floor(Math.random() * (i + 1)); [lines[i], lines[j]] = [lines[j], lines[i]]; }
      return good(lines.slice(0, most).map((line) => `${line}\n`).join(""));
    }

    // A pipe passes a command's output on when the command ends, so this one has to end.
    const yes = async (args) => good(`${args.join(" ") || "y"}\n`.repeat(10_000));

    // ---- node ------------------------------------------------------------------------------------------------------------
    const AsyncFunction = (async () => {}).constructor;
    async function node(args, context) {
      if (args[0] === "--version" || args[0] === "-v") return good(`${process.version}\n`);
      const prints = args[0] === "-p" || args[0] === "--print";
      const given = prints || args[0] === "-e" || args[0] === "--eval";
      if (!args.length) return bad("usage: node [-e CODE | -p CODE | FILE] [ARGUMENT...]");
      let source = args[1] ?? "";
      const out = { stdout: "", stderr: "", exitCode: 0 };
      if (!given) {
        try { source = textOf(await read(context, args[0])); } catch { return bad(`node: cannot open '${args[0]}'`); }
      }
      const { format, inspect } = require("util");
      const say = (stream) => (...values) => { out[stream] += `${format(...values)}\n`; };
      const [log, warn] = [say("stdout"), say("stderr")];
      const own = { log, info: log, debug: log, warn, error: warn, trace: warn };
      class Exit { constructor(code) { this.code = code; } }
      const stream = (name) => ({ write: (text) => { out[name] += text; return true; } });
      const world = Object.assign(Object.create(process), {
        argv: ["node", ...(given ? args.slice(2) : args)], env: Object.fromEntries(context.env), cwd: () => context.cwd,
        stdout: stream("stdout"), stderr: stream("stderr"), exit: (code) => { throw new Exit(code ?? 0); },
      });
      try {
        if (prints) { const value = await (0, eval)(source); log(typeof value === "string" ? value : inspect(value)); }
        else await new AsyncFunction("console", "process", "require", source)(own, world, require);
      } catch (error) {
        if (error instanceof Exit) out.exitCode = error.code & 0xff;
        else { out.stderr += `Uncaught ${error instanceof Error ? `${error.name}: ${error.message}` : inspect(error)}\n`; out.exitCode = 1; }
      }
      return out;
    }

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
    async function host([name, ...words]) {
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

    return { commands: { tar, xxd, shuf, yes, node, trap, host }, traps };
  };
})()
