// A CodeMirror language for a cell: the %%sandbox line, and below it a program in another language.
//
// The other language's parser must not see the magic line: in Ruby `%%sandbox` starts a string that extends over the
// whole cell, in C a path like `/data/*` in an option starts a comment. So a small parser splits the cell in two, and
// CodeMirror's mixed-language parsing passes the second part to JupyterLab's parser for that language.
import { MOST_MAGIC, magicEnd } from './magic.js';

// Returns a function `cellLanguage(support)`, which returns the extension for cells whose program is in the language of
// `support`, a LanguageSupport of JupyterLab's registry; null is plain text.
export async function cellLanguages(shared) {
  const [{ Language, defineLanguageFacet, languageDataProp }, { NodeType, Parser, Tree, parseMixed }, { styleTags, tags }] =
    await Promise.all(['@codemirror/language', '@lezer/common', '@lezer/highlight'].map(shared));

  const data = defineLanguageFacet();
  const Cell = NodeType.define({ id: 0, name: 'SandboxCell', top: true, props: [[languageDataProp, data]] });
  const Magic = NodeType.define({ id: 1, name: 'SandboxMagic', props: [styleTags({ SandboxMagic: tags.meta })] });
  const Program = NodeType.define({ id: 2, name: 'SandboxProgram' });

  function cellTree(input) {
    const end = Math.min(magicEnd(input.read(0, Math.min(input.length, MOST_MAGIC))), input.length);
    const parts = [new Tree(Magic, [], [], end), new Tree(Program, [], [], input.length - end)];
    return new Tree(Cell, parts, [0, end], input.length);
  }

  // Splitting a cell is a single step, so the first `advance` completes the parse.
  class CellParse {
    constructor(input) {
      this.input = input;
      this.parsedPos = 0;
      this.stoppedAt = null;
    }

    advance() {
      this.parsedPos = this.input.length;
      return cellTree(this.input);
    }

    stopAt(position) {
      this.stoppedAt = position;
    }
  }

  class CellParser extends Parser {
    constructor(program) {
      super();
      this.mix = parseMixed((node) => (program && node.type === Program ? { parser: program } : null));
    }

    createParse(input, fragments, ranges) {
      return this.mix(new CellParse(input), input, fragments, ranges);
    }
  }

  return (support) => {
    const language = new Language(data, new CellParser(support?.language.parser ?? null), [], 'sandbox-cell');
    return [language.extension, support?.support ?? []];
  };
}
