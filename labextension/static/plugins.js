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
import { FOLDER_LINE, offersPlugin, rightsPlugin } from './permission-prompts.js';
import { readChanges, readTree, stateOfCell } from './panel-facts.js';
import { changedFiles, receiptPlugin } from './receipt.js';
import { progressPlugin } from './run-progress.js';
import { sidePanel } from './side-panel.js';

const ICONS = {
  undo: 'M12.5 8c-2.65 0-5.05 1-6.9 2.6L2 7v9h9l-3.62-3.62A7.96 7.96 0 0 1 12.5 10.5c3.54 0 6.55 2.31 7.6 5.5l2.37-.78A10.5 10.5 0 0 0 12.5 8z',
  redo: 'M11.5 8c2.65 0 5.05 1 6.9 2.6L22 7v9h-9l3.62-3.62a7.96 7.96 0 0 0-5.12-1.88c-3.54 0-6.55 2.31-7.6 5.5l-2.37-.78A10.5 10.5 0 0 1 11.5 8z',
  time: 'M6 3a3 3 0 0 1 1 5.83v2.2C7.9 10.4 9 10 10.2 10h3.6c1.6 0 2.9-1 3.2-2.2a3 3 0 1 1 2 .1A5.2 5.2 0 0 1 13.800 12h-3.600C8.300 12 7 13.300 7 15v.17A3 3 0 1 1 5 15.17V8.83A3 3 0 0 1 6 3z',
  changes: 'M14 2H6a2 2 0 0 0-2 2v16c0 1.100.9 2 2 2h12a2 2 0 0 0 2-2V8zm-1 7h-2v2H9v-2H7V7h2V5h2v2h2zm4 9H7v-2h10z',
  access: 'M12 1 3 5v6c0 5.550 3.840 10.740 9 12 5.160-1.260 9-6.450 9-12V5zm0 11h7c-.53 4.120-3.280 7.790-7 8.940V12H5V6.300l7-3.110z',
  limits: 'M12 4a10 10 0 0 0-10 10c0 2.200.7 4.200 1.900 5.900h16.200A10 10 0 0 0 12 4zm5.700 6.700-4.300 4.200a2 2 0 1 1-1.400-1.400l4.200-4.300z',
  report: 'M9 16.170 4.830 12l-1.420 1.410L9 19 21 7l-1.410-1.410z',
  before: 'M13 3a9 9 0 0 0-9 9H1l3.9 3.9L9 12H6a7 7 0 1 1 2 4.900l-1.400 1.400A9 9 0 1 0 13 3zm-1 5v5l4.300 2.500.7-1.200-3.500-2.100V8z',
  after: 'M4 5h2v14H4zm4 6h8l-3-3 1.400-1.400L20 12l-5.600 5.400L13 16l3-3H8z',
  branch: 'M6 3a3 3 0 0 1 1 5.830v6.340A3 3 0 1 1 5 15.170V8.830A3 3 0 0 1 6 3zm12 3-4 4V7.500c-2 0-3 1-3 3H9c0-3.200 2-5.200 5-5.200V3z',
  restart: 'M17.650 6.350A8 8 0 1 0 19.730 14h-2.080A6 6 0 1 1 12 6c1.660 0 3.140.690 4.220 1.780L13 11h7V4zM9.500 12.500h5v4h-5z',
  stop: 'M7.500 2h9L22 7.500v9L16.500 22h-9L2 16.500v-9zM8 8v8h8V8z',
};

// The entries of the toolbar's menu, as in schemas/sandbox-kernel/commands.json for *Kernel → Sandbox*; null: a line between.
const MENU = ['redo', 'time', null, 'changes', 'access', 'limits', 'report', null, 'restart', 'stop'];

// The kernel that the launcher's tile starts.
const KERNEL = 'sandbox';
// Actions that may change how many changes wait to be applied.
const COUNTED = new Set(['undo', 'redo', 'go', 'apply', 'discard', 'limits', 'restart']);
// What stands in the menu and the toolbar of a cell: not in notebooks of other kernels.
const OF_CELL = ['before', 'after', 'branch'];

const COMMANDS = [
  { name: 'menu', label: 'Sandbox ▾', short: 'Sandbox: time, files, access, limits' },
  { name: 'undo', label: 'Take Back the Last Cell', short: 'Sandbox: take back the last cell' },
  { name: 'redo', label: 'Go Forward Again', short: 'Sandbox: go forward again' },
  { name: 'time', label: 'Tree of States', short: 'Sandbox: tree of states' },
  { name: 'changes', label: 'Files and Changes', short: 'Sandbox: files and changes' },
  { name: 'access', label: 'What Cells May Touch', short: 'Sandbox: what cells may touch' },
  { name: 'limits', label: 'Change Limits and Access…', short: 'Sandbox: change limits and access' },
  { name: 'restart', label: 'Restart, Keeping Variables…', short: 'Sandbox: restart the session, keeping its variables' },
  { name: 'report', label: 'Measure What Holds (Report)', short: 'Sandbox: measure what holds' },
  { name: 'stop', label: 'Stop the Running Cells', short: 'Sandbox: stop the running cells' },
  { name: 'before', label: 'Go Back to Before This Cell', short: 'Sandbox: go back to before this cell' },
  { name: 'after', label: 'Go to After This Cell', short: 'Sandbox: go to the state after this cell' },
  { name: 'branch', label: 'Run From Here in a Branch', short: 'Sandbox: run this cell and those below from the state before it' },
];

/** @param {import('lab-modules').Shared} shared */
export async function commandsPlugin(shared) {
  const [{ INotebookTracker }, { ICommandPalette, ISessionContextDialogs, Dialog, InputDialog, Notification, showDialog }, { LabIcon }, { Menu, Widget }, { ILayoutRestorer }] =
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
    optional: [ICommandPalette, ILayoutRestorer, ISessionContextDialogs],
    activate: (app, tracker, palette, restorer, dialogs) => {
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
        if (busy) return false;
        busy = true;
        try {
          tell(await work());
          return true;
        } catch (error) {
          tell(error.message, 'error');
          return false;
        } finally {
          busy = false;
        }
      };
      if (dialogs) offerToKeepVariables({ Dialog, showDialog, link: pressed, tracker, dialogs, told });
      const open = (tab) => {
        app.shell.activateById(panel.id);
        app.shell.expandRight?.();
        panel.select(tab);
      };
      // To the state before or after the active cell's last run.
      const goTo = async (current, place) => {
        const { model } = current.content.activeCell;
        const state = stateOfCell(readTree(await pressed.ask(current, 'tree')), model.id, model.executionCount);
        if (state?.[place] == null) throw new Error('The session has no state of this cell: run it, or look for its state in Time.');
        return (await pressed.change(current, 'go', { state: state[place] })).text;
      };
      // What waits to be applied is counted on the button.
      const waiting = countChanges(link, () => app.commands.notifyCommandChanged('sandbox-kernel:menu'));
      // In a narrow window words would push the kernel's name and status out of the toolbar.
      const narrow = window.matchMedia('(max-width: 1200px)');
      narrow.addEventListener('change', () => app.commands.notifyCommandChanged('sandbox-kernel:menu'));
      const badge = (label) => {
        const count = waiting.get(link.current) ?? 0;
        if (narrow.matches) return count ? `▾ ${count}` : '▾';
        return count ? `${label} · ${count} ${count === 1 ? 'change' : 'changes'} to apply` : label;
      };
      const menu = new Menu({ commands: app.commands });
      menu.id = 'sandbox-kernel-menu';
      for (const name of MENU) menu.addItem(name ? { command: `sandbox-kernel:${name}` } : { type: 'separator' });
      const work = {
        menu: (current) => {
          const { left, bottom } = current.toolbar.node.querySelector('[data-command="sandbox-kernel:menu"]').getBoundingClientRect();
          menu.open(left, bottom);
        },
        before: (current) => told(() => goTo(current, 'before')),
        after: (current) => told(() => goTo(current, 'after')),
        branch: (current) =>
          told(async () => {
            const text = await goTo(current, 'before');
            app.commands.execute('notebook:run-all-below');
            return text;
          }),
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
          label: ({ isPalette, toolbar }) => (isPalette ? short : name === 'menu' ? badge(label) : toolbar ? '' : label),
          caption: short,
          icon: ICONS[name] && icon(name),
          isEnabled: () => link.current !== null,
          isVisible: ({ toolbar }) => link.current !== null || !(toolbar || OF_CELL.includes(name)),
          execute: (fields) => link.current && work[name](link.current, fields),
        });
        palette?.addItem({ command: `sandbox-kernel:${name}`, category: 'Sandbox', args: { isPalette: true } });
      }
      link.changed.connect(() => COMMANDS.forEach(({ name }) => app.commands.notifyCommandChanged(`sandbox-kernel:${name}`)));
    },
  };
}

// The launcher's tile *Sandbox (this folder)*: a notebook whose first cell is the line that shows its folder. The press gives
// that right, so nobody is asked, nor by a later kernel where the notebook keeps its name. Notebook 7 has no launcher.
/** @param {import('lab-modules').Shared} shared */
async function launcherPlugin(shared) {
  const [[{ INotebookTracker, NotebookActions }, { Notification }], ILauncher] = await Promise.all([
    shared('@jupyterlab/notebook', '@jupyterlab/apputils'),
    shared('@jupyterlab/launcher').then(([found]) => found.ILauncher, () => null),
  ]);
  const link = await kernelLink(shared);
  const open = async (app, cwd) => {
    const panel = await app.commands.execute('notebook:create-new', { kernelName: KERNEL, cwd });
    await panel.context.ready;
    panel.content.model.sharedModel.getCell(0).setSource(FOLDER_LINE);
    await link.whenSandbox(panel);
    await link.change(panel, 'limits', { here: '.' });
    await link.ask(panel, 'keep-line', { line: FOLDER_LINE });
    await NotebookActions.runAndAdvance(panel.content, panel.sessionContext);
  };

  return {
    id: 'sandbox-kernel:launcher',
    description: 'A tile for a notebook that works on its folder.',
    autoStart: true,
    requires: [INotebookTracker],
    optional: ILauncher ? [ILauncher] : [],
    activate: async (app, tracker, launcher) => {
      link.follow(tracker);
      await app.serviceManager.kernelspecs.ready;
      const spec = app.serviceManager.kernelspecs.specs?.kernelspecs[KERNEL];
      if (!launcher || !spec) return;
      const command = 'sandbox-kernel:new-here';
      app.commands.addCommand(command, {
        label: `${spec.display_name} (this folder)`,
        caption: 'A notebook that works on a copy of this folder; nothing is written until you apply changes',
        execute: ({ cwd }) => open(app, cwd).catch((error) => void Notification.error(error.message)),
      });
      launcher.add({ command, category: 'Notebook', rank: 1, kernelIconUrl: spec.resources['logo-svg'] ?? spec.resources['logo-64x64'] });
    },
  };
}

// Jupyter's own question before a restart says that all variables will be lost: here they need not be.
function offerToKeepVariables({ Dialog, showDialog, link, tracker, dialogs, told }) {
  const usual = dialogs.restart.bind(dialogs);
  dialogs.restart = async (context) => {
    const panel = tracker.find((one) => one.sessionContext === context);
    if (!panel || panel !== link.current) return usual(context);
    const { button } = await showDialog({
      title: 'Restart Kernel?',
      body: 'Restart the kernel, and all variables are lost; or begin a new session that has the variables of this one.',
      buttons: [Dialog.cancelButton(), Dialog.okButton({ label: DIALOG_BUTTONS['restart-with'] }), Dialog.warnButton({ label: DIALOG_BUTTONS.restart })],
    });
    if (!button.accept) return false;
    if (button.label === DIALOG_BUTTONS['restart-with']) return told(async () => (await link.change(panel, 'restart')).text);
    await context.restartKernel();
    return true;
  };
}

// How many changes of its folder each notebook has that are not applied. The kernel is asked where a cell says that it
// changed files, and while there are some.
function countChanges(link, changed) {
  const counts = new WeakMap();
  const asking = new WeakSet();
  link.changed.connect(async (_link, { panel, why, outputs }) => {
    if (!panel || why === 'current' || asking.has(panel) || !link.isSandbox(panel)) return;
    if (why === 'kernel') counts.delete(panel);
    else if (!counts.get(panel) && !(why === 'cell' ? changedFiles(outputs) : COUNTED.has(why))) return;
    asking.add(panel);
    try {
      const { changes, more } = readChanges(await link.ask(panel, 'changes'));
      counts.set(panel, changes.length + more);
    } catch {
      // The kernel went away: the next one tells.
    } finally {
      asking.delete(panel);
      changed();
    }
  });
  return counts;
}

function svg(path) {
  return `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24"><path class="jp-icon3" fill="#616161" fill-rule="evenodd" d="${path}"/></svg>`;
}

// Makes the plugins of this extension. `shared(...names)` returns modules that JupyterLab shares.
//
// Each plugin can be switched off separately: `jupyter labextension disable sandbox-kernel:limits`.

/** @param {import('lab-modules').Shared} shared */
export function plugins(shared) {
  return Promise.all([commandsPlugin, framesPlugin, highlightPlugin, launcherPlugin, limitsPlugin, offersPlugin, progressPlugin, receiptPlugin, reopenedPlugin, rightsPlugin].map((make) => make(shared)));
}
