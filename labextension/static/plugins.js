// All plugins of this extension.

// Commands of the Sandbox kernel, for the toolbar, the palette, the kernel menu and the status bar; and the side panel.
//
// schemas/sandbox-kernel/commands.json puts them into toolbar and menu, where users can rearrange them.
import { DIALOG_BUTTONS } from './dom.js';
import { framesPlugin } from './frames.js';
import { WAITING, kernelLink, withNotice } from './kernel-link.js';
import { highlightPlugin } from './languages.js';
import { editLimits, limitsPlugin, restartKeeping } from './limits.js';
import { followPastCells, reopenedPlugin } from './past-outputs.js';
import { offersPlugin, rightsPlugin } from './permission-prompts.js';
import { receiptPlugin } from './receipt.js';
import { sidePanel } from './side-panel.js';

const ICONS = {
  undo: 'M12.5 8c-2.65 0-5.05 1-6.9 2.6L2 7v9h9l-3.62-3.62A7.96 7.96 0 0 1 12.5 10.5c3.54 0 6.55 2.31 7.6 5.5l2.37-.78A10.5 10.5 0 0 0 12.5 8z',
  redo: 'M11.5 8c2.65 0 5.05 1 6.9 2.6L22 7v9h-9l3.62-3.62a7.96 7.96 0 0 0-5.12-1.88c-3.54 0-6.55 2.31-7.6 5.5l-2.37-.78A10.5 10.5 0 0 1 11.5 8z',
  time: 'M6 3a3 3 0 0 1 1 5.83v2.2C7.9 10.4 9 10 10.2 10h3.6c1.6 0 2.9-1 3.2-2.2a3 3 0 1 1 2 .1A5.2 5.2 0 0 1 13.800 12h-3.600C8.300 12 7 13.300 7 15v.17A3 3 0 1 1 5 15.17V8.83A3 3 0 0 1 6 3z',
  changes: 'M14 2H6a2 2 0 0 0-2 2v16c0 1.100.9 2 2 2h12a2 2 0 0 0 2-2V8zm-1 7h-2v2H9v-2H7V7h2V5h2v2h2zm4 9H7v-2h10z',
  access: 'M12 1 3 5v6c0 5.550 3.840 10.740 9 12 5.160-1.260 9-6.450 9-12V5zm0 11h7c-.53 4.120-3.280 7.790-7 8.940V12H5V6.300l7-3.110z',
  limits: 'M12 4a10 10 0 0 0-10 10c0 2.200.7 4.200 1.900 5.900h16.200A10 10 0 0 0 12 4zm5.700 6.700-4.300 4.200a2 2 0 1 1-1.400-1.400l4.200-4.300z',
  report: 'M9 16.170 4.830 12l-1.420 1.410L9 19 21 7l-1.410-1.410z',
  restart: 'M17.650 6.350A8 8 0 1 0 19.730 14h-2.080A6 6 0 1 1 12 6c1.660 0 3.140.690 4.220 1.780L13 11h7V4zM9.500 12.500h5v4h-5z',
  stop: 'M7.500 2h9L22 7.500v9L16.500 22h-9L2 16.500v-9zM8 8v8h8V8z',
};

const COMMANDS = [
  { name: 'undo', label: 'Take Back the Last Cell', short: 'Sandbox: take back the last cell' },
  { name: 'redo', label: 'Go Forward Again', short: 'Sandbox: go forward again' },
  { name: 'time', label: 'Tree of States', short: 'Sandbox: tree of states' },
  { name: 'changes', label: 'Files and Changes', short: 'Sandbox: files and changes' },
  { name: 'access', label: 'What Cells May Touch', short: 'Sandbox: what cells may touch' },
  { name: 'limits', label: 'Change Limits and Access…', short: 'Sandbox: change limits and access' },
  { name: 'restart', label: 'Restart, Keeping Variables…', short: 'Sandbox: restart the session, keeping its variables' },
  { name: 'report', label: 'Measure What Holds (Report)', short: 'Sandbox: measure what holds' },
  { name: 'stop', label: 'Stop the Running Cells', short: 'Sandbox: stop the running cells' },
];

/** @param {import('lab-modules').Shared} shared */
export async function commandsPlugin(shared) {
  const [{ INotebookTracker }, { ICommandPalette, Dialog, InputDialog, Notification, showDialog }, { LabIcon }, { Widget }, { ILayoutRestorer }] =
    await shared('@jupyterlab/notebook', '@jupyterlab/apputils', '@jupyterlab/ui-components', '@lumino/widgets', '@jupyterlab/application');
  const link = await kernelLink(shared);
  const icon = (name) => new LabIcon({ name: `sandbox-kernel:${name}`, svgstr: svg(ICONS[name]) });

  const confirm = async (title, body, label) =>
    (await showDialog({ title, body, buttons: [Dialog.cancelButton(), Dialog.warnButton({ label })] })).button.accept;
  const askName = async (title) => (await InputDialog.getText({ title, label: 'Name', okLabel: DIALOG_BUTTONS.name })).value?.trim() ?? '';

  return {
    id: 'sandbox-kernel:commands',
    description: 'Commands, buttons and the side panel of the Sandbox kernel.',
    autoStart: true,
    requires: [INotebookTracker],
    optional: [ICommandPalette, ILayoutRestorer],
    activate: (app, tracker, palette, restorer) => {
      link.follow(tracker);
      followPastCells(link);
      const openLimits = (fields = {}) => app.commands.execute('sandbox-kernel:limits', fields);
      const restart = () => app.commands.execute('sandbox-kernel:restart');
      const panel = sidePanel(Widget, { link, confirm, askName, editLimits: openLimits, restart });
      panel.title.icon = icon('access');
      panel.title.caption = 'Sandbox';
      app.shell.add(panel, 'right', { rank: 700, type: 'Sandbox' });
      restorer?.add(panel, 'sandbox-kernel-panel');

      // What a command did is said in the side panel where that is open, else in a notification; both take plain text.
      const tell = (text, kind = /** @type {import('@jupyterlab/apputils').Notification.TypeOptions} */ ('success')) => {
        if (!text) return;
        if (panel.isVisible) panel.say(text, kind === 'error' ? 'bad' : '');
        else Notification.emit(text.slice(0, 400), kind, { autoClose: kind === 'error' ? 15000 : 6000 });
      };
      const pressed = withNotice(link, () => tell(WAITING, 'info'));
      // One at a time: pressed again while the kernel runs a cell, a command would be done twice after it.
      let busy = false;
      const told = async (work) => {
        if (busy) return;
        busy = true;
        try {
          tell(await work());
        } catch (error) {
          tell(error.message, 'error');
        } finally {
          busy = false;
        }
      };
      const open = (tab) => {
        app.shell.activateById(panel.id);
        app.shell.expandRight?.();
        panel.select(tab);
      };
      const work = {
        undo: (current) => told(async () => (await pressed.change(current, 'undo')).text),
        redo: (current) => told(async () => (await pressed.change(current, 'redo')).text),
        time: () => open('time'),
        changes: () => open('changes'),
        access: () => open('access'),
        limits: (current, { here }) => told(() => editLimits({ Dialog, showDialog, Widget, link: pressed, panel: current, here: here === true })),
        restart: (current) => told(() => restartKeeping({ confirm, link: pressed, panel: current })),
        report: () => {
          open('access');
          return panel.view.measure();
        },
        stop: (current) => current.sessionContext.session.kernel.interrupt(),
      };
      for (const { name, label, short } of COMMANDS) {
        app.commands.addCommand(`sandbox-kernel:${name}`, {
          label: ({ isPalette, toolbar }) => (isPalette ? short : toolbar ? '' : label),
          caption: short,
          icon: icon(name),
          isEnabled: () => link.current !== null,
          isVisible: ({ toolbar }) => !toolbar || link.current !== null,
          execute: (fields) => link.current && work[name](link.current, fields),
        });
        palette?.addItem({ command: `sandbox-kernel:${name}`, category: 'Sandbox', args: { isPalette: true } });
      }
      link.changed.connect(() => COMMANDS.forEach(({ name }) => app.commands.notifyCommandChanged(`sandbox-kernel:${name}`)));
    },
  };
}

function svg(path) {
  return `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><path class="jp-icon3" fill="#616161" fill-rule="evenodd" d="${path}"/></svg>`;
}

// Makes the plugins of this extension. `shared(...names)` returns modules that JupyterLab shares.
//
// Each plugin can be switched off separately: `jupyter labextension disable sandbox-kernel:limits`.

/** @param {import('lab-modules').Shared} shared */
export function plugins(shared) {
  return Promise.all([commandsPlugin, framesPlugin, highlightPlugin, limitsPlugin, offersPlugin, receiptPlugin, reopenedPlugin, rightsPlugin].map((make) => make(shared)));
}
