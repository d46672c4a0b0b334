// Draws what a cell lacked, with buttons: allow once, for this session, never. The first two run the cell again.
import { control, CONTROLS } from './controls.js';
import { element } from './dom.js';
import { kernelLink } from './kernel-link.js';
import { OFFERS, readOffers } from './offer-facts.js';
import { OWN_KEYS } from './receipt.js';

const LATE_MILLISECONDS = 300;
const BUTTONS = [
  { how: 'once', again: true },
  { how: 'session', again: true },
  { how: 'folder', again: true },
  { how: 'never', again: false },
];

export async function offersPlugin(shared) {
  const [{ IRenderMimeRegistry }, { INotebookTracker, NotebookActions }, { Widget }] = await Promise.all(
    ['@jupyterlab/rendermime', '@jupyterlab/notebook', '@lumino/widgets'].map(shared),
  );
  const link = await kernelLink(shared);

  return {
    id: 'sandbox-kernel:offers',
    description: 'Shows buttons to allow what a cell lacked.',
    autoStart: true,
    requires: [IRenderMimeRegistry, INotebookTracker],
    activate: (_app, registry, tracker) => {
      link.follow(tracker);

      class Offers extends Widget {
        constructor() {
          super();
          this.addClass('jp-SandboxReceipt');
          this.addClass('jp-SandboxReceipt-allow');
        }

        // Called by JupyterLab for every new or changed output of our MIME type.
        async renderModel(model) {
          this._said = element('span', { attributes: { role: 'status' } });
          const rows = readOffers(model.data[OFFERS]).map((offer) => this._row(offer));
          this.node.replaceChildren(...rows, this._said);
        }

        _row(offer) {
          const buttons = BUTTONS.filter(({ how }) => how in offer.lines).map(({ how, again }) => {
            const title = how === 'once' && offer.once ? offer.once : offer.lines[how];
            const name = `allow-${how}`;
            const button = control(name, 'button', { attributes: { type: 'button', title, 'aria-label': `${CONTROLS[name]}: ${offer.what}`, ...OWN_KEYS } });
            const change = how === 'folder' ? ['restart', { here: '.' }] : ['answer', { line: offer.lines[how] }];
            button.addEventListener('click', () => this._answer(change, again));
            return button;
          });
          return element('div', {
            attributes: { role: 'group', 'aria-label': offer.what },
            children: [element('span', { children: [offer.before, element('code', { text: offer.what }), offer.after] }), ...buttons],
          });
        }

        // Only a cell that this page has run since its kernel began may be answered: a notebook file can hold any offer.
        async _answer(change, again) {
          const panel = tracker.find((one) => one.node.contains(this.node));
          const cell = panel?.content.widgets.find((one) => one.node.contains(this.node));
          if (!cell || !link.hasRun(panel, cell)) {
            this._said.textContent = 'Run the cell first: this offer is from an earlier kernel or page.';
            return;
          }
          if (this._busy) return;
          this._busy = true;
          const late = setTimeout(() => (this._said.textContent = 'Waits until the cells that run have ended…'), LATE_MILLISECONDS);
          try {
            await link.change(panel, ...change);
            clearTimeout(late);
            this._said.textContent = again ? 'Allowed; the cell runs again.' : 'Not asked again in this session.';
            if (again) await NotebookActions.runCells(panel.content, [cell], panel.sessionContext);
          } catch (error) {
            this._said.textContent = error.message.slice(0, 1000);
          } finally {
            clearTimeout(late);
            this._busy = false;
          }
        }
      }

      registry.addFactory({ safe: true, mimeTypes: [OFFERS], createRenderer: () => new Offers() }, 0);
    },
  };
}
