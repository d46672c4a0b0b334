// Asks the user for rights: what a cell asked for, and what it lacked.

// Turns the JSON of an offer into what the page shows. Pure functions.
//
// A notebook file may be hostile, so the sentence and the lines that buttons send are made here: of what the user sees,
// and nothing else.
// sandbox_kernel/notebook/permission_prompts.py writes the JSON.
import { CONTROLS, control, element, paragraph } from './dom.js';
import { kernelLink } from './kernel-link.js';
import { OWN_KEYS, safeText, safeTextOf } from './receipt.js';

export const OFFERS = 'application/vnd.sandbox-kernel.offers+json';

const MOST_OFFERS = 3;
const SESSION = / --session ([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})$/;

// Returns [{what, before, after, once, lines: {once, session, never, folder}}], with the words before and after what; offers that cannot be shown as they are, are left out.
export function readOffers(data) {
  const offers = data !== null && typeof data === 'object' && Array.isArray(data.offers) ? data.offers : [];
  return offers.slice(0, MOST_OFFERS).map(readOffer).filter((offer) => offer !== null);
}

function readOffer(offer) {
  if (offer === null || typeof offer !== 'object') return null;
  const { what, kind, lines } = offer;
  // What was cut or cleaned would not be what the line allows; the kernel takes a word with a slash for a file.
  if (typeof what !== 'string' || !/^[^-\s]/.test(what) || what === 'once' || safeText(what) !== what) return null;
  if (kind !== 'file' && what.includes('/')) return null;
  if (kind === 'package') {
    // No path, archive or option: the line that is copied runs outside.
    if (!what.split(' ').every((word) => /^[A-Za-z0-9][\w.,*+!<>=~[\]-]*$/.test(word) && !/\.(?:whl|zip|t[abglx]z2?|tar)\b/i.test(word))) return null;
    const words = what.split(' ').map(quoted).join(' ');
    return { what, before: 'The cell needs packages: ', after: '. Only wheels are fetched, outside of the cell.', once: '', lines: { install: `%sandbox install ${words}`, copy: `pip install ${words}` } };
  }
  const named = SESSION.exec(typeof lines?.session === 'string' ? lines.session : '');
  const word = quoted(kind === 'file' && !what.includes('/') ? `./${what}` : what);
  return {
    what,
    before: kind === 'file' ? 'The program looked for ' : 'The program wanted to reach ',
    after: kind === 'file' ? ', which is beside the notebook.' : '.',
    once: safeText(offer.once_means),
    lines: {
      once: `%sandbox allow once ${word}`,
      session: `%sandbox allow ${word}${named ? ` --session ${named[1]}` : ''}`,
      never: `%sandbox never ${word}`,
      ...(kind === 'file' && !named ? { folder: '%sandbox restart --keep --here' } : {}),
    },
  };
}

// As a shell quotes a word; safeText has taken out line breaks.
export function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

// Draws what a cell lacked, with buttons: allow once, for this session, never. The first two run the cell again.

const LATE_MILLISECONDS = 300;
export const FOLDER_LINE = '%sandbox --here';
const BUTTONS = [
  { how: 'install', again: true },
  { how: 'copy', again: false },
  { how: 'once', again: true },
  { how: 'session', again: true },
  { how: 'folder', again: true },
  { how: 'never', again: false },
];

/** @param {import('lab-modules').Shared} shared */
export async function offersPlugin(shared) {
  const [{ IRenderMimeRegistry }, { INotebookTracker, NotebookActions }, { Notification }, { Widget }] = await shared('@jupyterlab/rendermime', '@jupyterlab/notebook', '@jupyterlab/apputils', '@lumino/widgets');
  const link = await kernelLink(shared);
  // The right ends with the kernel; as a line of the notebook it lasts. Where it is not remembered, the next kernel asks.
  const keepFolder = async (panel) => {
    panel.content.model?.sharedModel.insertCell(0, { cell_type: 'code', source: FOLDER_LINE });
    await link.ask(panel, 'keep-line', { line: FOLDER_LINE }).catch((error) => Notification.warning(error.message));
  };
  const tellOfFolder = (panel) =>
    Notification.info('Cells work on a copy of the notebook’s folder. Nothing is written to your files until you apply changes.', {
      autoClose: 20000,
      actions: [{ label: 'Put this into the notebook', callback: () => void keepFolder(panel) }],
    });

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
          const main = ['install', 'folder', 'once'].find((how) => how in offer.lines);
          const buttons = BUTTONS.filter(({ how }) => how in offer.lines).map(({ how, again }) => {
            const title = how === 'once' && offer.once ? offer.once : offer.lines[how];
            const name = `allow-${how}`;
            const button = control(name, 'button', { className: how === main ? 'jp-SandboxReceipt-main' : '', attributes: { type: 'button', title, 'aria-label': `${CONTROLS[name]}: ${offer.what}`, ...OWN_KEYS } });
            button.addEventListener('click', () => this._answer(how, offer.lines[how], again));
            return button;
          });
          return element('div', {
            attributes: { role: 'group', 'aria-label': offer.what },
            children: [element('span', { children: [offer.before, element('code', { text: offer.what }), offer.after] }), ...buttons],
          });
        }

        // Only a cell that this page has run since its kernel began may be answered: a notebook file can hold any offer.
        async _answer(how, line, again) {
          if (how === 'copy') {
            await navigator.clipboard.writeText(line);
            this._said.textContent = `Copied: ${line}`;
            return;
          }
          const panel = tracker.find((one) => one.node.contains(this.node));
          const cell = panel?.content.widgets.find((one) => one.node.contains(this.node));
          if (!cell || !link.hasRun(panel, cell)) {
            this._said.textContent = 'Run the cell first: this offer is from an earlier kernel or page.';
            return;
          }
          if (this._busy) return;
          this._busy = true;
          const slow = how === 'install' ? 'Fetches the packages…' : 'Waits until the cells that run have ended…';
          const late = setTimeout(() => (this._said.textContent = slow), LATE_MILLISECONDS);
          try {
            if (how === 'folder') await link.change(panel, 'restart', { here: '.' });
            else await link.change(panel, 'answer', { line });
            clearTimeout(late);
            this._said.textContent = again ? `${how === 'install' ? 'Installed' : 'Allowed'}; the cell runs again.` : 'Not asked again in this session.';
            if (how === 'folder') tellOfFolder(panel);
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

// Draws the prompt of a cell whose lines ask for rights: what all cells of the notebook ask for, and two buttons.
//
// A notebook file may be hostile, so nothing of the output is shown: the kernel says what the cells of this page ask for,
// once this page has run the cell. sandbox_kernel/notebook/options/own_rights.py is its side.

const RIGHTS = 'application/vnd.sandbox-kernel.rights+json';
const LINES = /^%%?sandbox\b/m;
const MOST_SOURCES = 1 << 20;
const MOST_SHOWN = 20000; // the kernel bounds it

/** @param {import('lab-modules').Shared} shared */
export async function rightsPlugin(shared) {
  const [{ IRenderMimeRegistry }, { INotebookTracker, NotebookActions }, { Widget }] = await shared('@jupyterlab/rendermime', '@jupyterlab/notebook', '@lumino/widgets');
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
