// Highlights each code cell in the language that its %%sandbox line names, in any kernel, also while it is typed.
//
// JupyterLab gives every cell the kernel's language. Ours is laid over it in the cell's own editor and taken away again
// with the magic line, so nothing of the notebook changes and a cell without the magic is never touched.
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

// The MIME type of the language that a cell with this text names, or null for a cell without the magic.
export function wantedMimeType(source) {
  const magic = cellMagic(source);
  return magic && highlighterOf(parseLanguage(magic.language ?? DEFAULT_LANGUAGE));
}

// The extension of one editor: looks at the magic line after every change and asks `load` when the language is another.
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
