// TypeScript for the JavaScript engine: the compiler is in the image and translates each program into JavaScript.
// With the types of the language and of the engine's globals it can also check the types of a program.
(function (host, ts, library, decorators, world) {
  "use strict";
  const options = {
    target: ts.ScriptTarget.ES2022,
    module: ts.ModuleKind.ESNext,
    isolatedModules: true,
    sourceMap: false,
    inlineSourceMap: false,
    experimentalDecorators: true,
    // Keeps the lines where they are, so that errors have the line numbers of the program.
    removeComments: false,
  };

  function refused(errors, name) {
    const lines = errors.map((found) => {
      const message = ts.flattenDiagnosticMessageText(found.messageText, "\n");
      if (found.file === undefined || found.start === undefined) return `${name}: error TS${found.code}: ${message}`;
      const { line, character } = found.file.getLineAndCharacterOfPosition(found.start);
      return `${name}(${line + 1},${character + 1}): error TS${found.code}: ${message}`;
    });
    return JSON.stringify({ error: lines.join("\n"), code: 2, compile: true });
  }

  function transpile(source, name) {
    const { outputText, diagnostics } = ts.transpileModule(source, { compilerOptions: options, fileName: name, reportDiagnostics: true });
    const errors = diagnostics.filter((found) => found.category === ts.DiagnosticCategory.Error);
    if (errors.length) return refused(errors, name);
    // A program that exports only types, or nothing, is a script and not a module.
    return JSON.stringify({ source: outputText.replace(/^export \{\};?$/m, "") });
  }

  transpile("enum A { B } namespace N { export const c: number = A.B; } class D<T> { constructor(private x: T) {} }", "warm.ts");
  if (library === undefined) return { transpile };

  // ---- checking --------------------------------------------------------------------------------------------------------
  const strict = {
    ...options, isolatedModules: false, strict: true, noEmit: true, skipLibCheck: true, types: [], allowImportingTsExtensions: true,
    lib: ["lib.es2024.d.ts"], moduleResolution: ts.ModuleResolutionKind.Bundler,
    // Each cell is a module: its names are private, and it may use top-level await.
    moduleDetection: ts.ModuleDetectionKind.Force,
  };
  const WORLD = "/types/world.d.ts";
  // The type of `host`: any function, unless the program comes with the types of those that it may call.
  const HOST = "/types/host.d.ts";
  const ANY_HOST = "declare const host: { HostError: any; [name: string]: (...given: any[]) => any };";
  const texts = { ...library, ...decorators };
  const read = new Map();
  let program;

  function problems(source, name, hostTypes) {
    const given = { [WORLD]: world, [HOST]: hostTypes || ANY_HOST };
    const known = (path) => given[path] ?? texts[path.slice(path.lastIndexOf("/") + 1)];
    const files = {
      getSourceFile(path, version) {
        if (path === name) return ts.createSourceFile(name, source, version);
        if (path === HOST && hostTypes) return ts.createSourceFile(path, hostTypes, version);
        if (!read.has(path)) {
          const text = known(path);
          read.set(path, text === undefined ? undefined : ts.createSourceFile(path, text, version));
        }
        return read.get(path);
      },
      fileExists: (path) => path === name || known(path) !== undefined,
      readFile: (path) => (path === name ? source : known(path)),
      directoryExists: () => false,
      getDefaultLibFileName: () => "/types/lib.es2024.d.ts",
      getDefaultLibLocation: () => "/types",
      getCurrentDirectory: () => "/cell",
      getCanonicalFileName: (path) => path,
      useCaseSensitiveFileNames: () => true,
      getNewLine: () => "\n",
      writeFile() {},
    };
    program = ts.createProgram({ rootNames: [WORLD, HOST, name], options: strict, host: files, oldProgram: program });
    const file = program.getSourceFile(name);
    const found = [...program.getOptionsDiagnostics(), ...program.getSyntacticDiagnostics(file), ...program.getSemanticDiagnostics(file)];
    return found.filter((one) => one.category === ts.DiagnosticCategory.Error);
  }

  function check(source, name, hostTypes) {
    const errors = problems(source, name, hostTypes);
    return errors.length ? refused(errors, name) : transpile(source, name);
  }

  problems("const warm: Map<string, number[]> = new Map(); console.log([...warm].map(([k, v]) => `${k}${v}`)); await 0;", "cell.ts");
  return { transpile, check };
})
