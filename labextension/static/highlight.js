// Highlights each code cell in the language of its %%sandbox line, in any kernel, while the user types.
//
// JupyterLab highlights every cell in the kernel's language. This plugin adds an editor extension of higher precedence
// to cells with the magic line and removes it with the line. It changes nothing in the notebook.
import { cellLanguages } from './cell-language.js';
import { DEFAULT_LANGUAGE, highlighterOf, parseLanguage } from './languages.js';
import { MOST_MAGIC, cellMagic } from './magic.js';

export async function highlightPlugin(shared) {
  const [{ EditorExtensionRegistry, IEditorExtensionRegistry, IEditorLanguageRegistry }, state, { ViewPlugin }] =
    await Promise.all(['@jupyterlab/codemirror', '@codemirror/state', '@codemirror/view'].map(shared));
  const cellLanguage = await cellLanguages(shared);

  return {
    id: 'sandbox-kernel:highlight',
    description: 'Highlights %%sandbox cells in their own language.',
    autoStart: true,
    requires: [IEditorExtensionRegistry, IEditorLanguageRegistry],
    activate: (_app, editorExtensions, editorLanguages) => {
      const load = async (mimeType) => {
        if (mimeType === null) return [];
        if (mimeType === 'text/plain') return cellLanguage(null);
        return cellLanguage((await editorLanguages.getLanguage(mimeType)).support);
      };
      editorExtensions.addExtension({
        name: 'sandbox-kernel:highlight',
        factory: ({ model }) =>
          model.type === 'code' ? EditorExtensionRegistry.createImmutableExtension(follower(load, state, ViewPlugin)) : null,
      });
    },
  };
}

// Returns the MIME type of the language that the cell names, or null for a cell without the magic.
export function wantedMimeType(source) {
  const magic = cellMagic(source);
  return magic && highlighterOf(parseLanguage(magic.language ?? DEFAULT_LANGUAGE));
}

// Returns the extension of one editor. It reads the magic line after every change and calls `load` for a new language.
function follower(load, { Compartment, Prec }, ViewPlugin) {
  const slot = new Compartment();
  class Follower {
    constructor(view) {
      this.view = view;
      this.wanted = null;
      this.follow();
    }

    update(change) {
      if (change.docChanged) this.follow();
    }

    destroy() {
      this.view = null;
    }

    async follow() {
      const wanted = wantedMimeType(this.view.state.doc.sliceString(0, MOST_MAGIC));
      if (wanted === this.wanted) return;
      this.wanted = wanted;
      const extension = await load(wanted);
      // Loading takes a while: the user may have typed on, or closed the notebook.
      if (this.wanted === wanted) this.view?.dispatch({ effects: slot.reconfigure(extension) });
    }
  }
  return [Prec.highest(slot.of([])), ViewPlugin.fromClass(Follower)];
}
