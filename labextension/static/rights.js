// Draws the prompt of a cell whose lines ask for rights: what all cells of the notebook ask for, and two buttons.
//
// A notebook file may be hostile, so nothing of the output is shown: the kernel says what the cells of this page ask for,
// once this page has run the cell. sandbox_kernel/notebook/options/own_rights.py is its side.
import { control } from './controls.js';
import { element } from './dom.js';
import { kernelLink } from './kernel-link.js';
import { paragraph } from './parts.js';
import { OWN_KEYS } from './receipt.js';
import { safeTextOf } from './receipt-facts.js';

const RIGHTS = 'application/vnd.sandbox-kernel.rights+json';
const LINES = /^%%?sandbox\b/m;
const MOST_SOURCES = 1 << 20;
const MOST_SHOWN = 20000; // the kernel bounds it

export async function rightsPlugin(shared) {
  const [{ IRenderMimeRegistry }, { INotebookTracker, NotebookActions }, { Widget }] = await Promise.all(
    ['@jupyterlab/rendermime', '@jupyterlab/notebook', '@lumino/widgets'].map(shared),
  );
  const link = await kernelLink(shared);

  return {
    id: 'sandbox-kernel:rights',
    description: 'Asks the user for rights that the lines of cells ask for.',
    autoStart: true,
    requires: [IRenderMimeRegistry, INotebookTracker],
    activate: (_app, registry, tracker) => {
      link.follow(tracker);

      class Rights extends Widget {
        constructor() {
          super();
          this.addClass('jp-SandboxReceipt');
          this.addClass('jp-SandboxReceipt-allow');
          this.addClass('jp-SandboxRights');
          link.changed.connect(this._look, this);
        }

        dispose() {
          link.changed.disconnect(this._look, this);
          super.dispose();
        }

        // Called by JupyterLab for every new or changed output of our MIME type.
        async renderModel() {
          this._asked = false;
          this._say('The lines of this cell ask for rights. Run the cell: then you are asked.');
          await this._look();
        }

        onAfterAttach() {
          void this._look();
        }

        async _look() {
          const panel = tracker.find((one) => one.node.contains(this.node));
          const cell = panel?.content.widgets.find((one) => one.node.contains(this.node));
          if (this._asked || !cell || !link.hasRun(panel, cell)) return;
          this._asked = true;
          const cells = panel.content.widgets.filter((one) => one.model.type === 'code');
          try {
            this._draw(panel, cell, cells.indexOf(cell) + 1, await link.ask(panel, 'rights', { cells: sources(cells, cell) }));
          } catch (error) {
            this._say(error.message);
          }
        }

        _draw(panel, cell, own, { key, cells, remembered }) {
          if (cells.length === 0) {
            this._say('Allowed meanwhile. Run the cell again.');
            return;
          }
          const rows = cells.flatMap(([number, rights]) => [
            element('dt', { text: number === own ? 'This cell' : `Code cell ${number}` }),
            ...rights.map(([right, help]) => element('dd', { children: [element('code', { text: safeTextOf(MOST_SHOWN, right) }), element('span', { text: safeTextOf(MOST_SHOWN, help) })] })),
          ]);
          const attributes = { type: 'button', ...OWN_KEYS };
          const allow = control('allow-notebook', 'button', { attributes });
          const refuse = control('allow-nothing', 'button', { attributes });
          allow.addEventListener('click', () => this._allow(panel, cell, key));
          refuse.addEventListener('click', () => this._say('Not allowed, and the cell did not run. Run it to be asked again.'));
          this.node.replaceChildren(
            paragraph('The lines of this notebook ask for rights. The cell has not run.', 'jp-SandboxRights-title'),
            element('dl', { children: rows }),
            paragraph(`Allow what you would write yourself: a program can keep and send what it sees.${remembered ? ' The answer is remembered for this notebook, until its lines ask for more.' : ''}`),
            element('div', { attributes: { role: 'group', 'aria-label': 'rights' }, children: [allow, refuse] }),
          );
        }

        async _allow(panel, cell, key) {
          try {
            await link.change(panel, 'allow-rights', { key });
            this._say('Allowed; the cell runs.');
            await NotebookActions.runCells(panel.content, [cell], panel.sessionContext);
          } catch (error) {
            this._say(error.message);
          }
        }

        _say(text) {
          this.node.replaceChildren(element('p', { text, attributes: { role: 'status' } }));
        }
      }

      registry.addFactory({ safe: true, mimeTypes: [RIGHTS], createRenderer: () => new Rights() }, 0);
    },
  };
}

// The texts of the code cells that have lines of ours, at their places; of a huge notebook the present cell's alone.
function sources(cells, present) {
  const texts = cells.map((one) => one.model.sharedModel.getSource()).map((text) => (LINES.test(text) ? text : ''));
  if (texts.reduce((sum, text) => sum + text.length, 0) <= MOST_SOURCES) return texts;
  return texts.map((text, at) => (cells[at] === present ? text : ''));
}
