// TypeScript for the JavaScript engine: the compiler is in the image and translates each program into JavaScript.
(function (host, ts) {
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
  return { transpile };
})
