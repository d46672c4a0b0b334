// The side panel "Sandbox": three tabs about the current notebook. Each tab is a file of its own.
import { accessTab } from './access-tab.js';
import { changesTab } from './changes-tab.js';
import { control } from './controls.js';
import { element } from './dom.js';
import { WAITING, withNotice } from './kernel-link.js';
import { timeTab } from './time-tab.js';

const TABS = [
  { name: 'changes', make: changesTab },
  { name: 'time', make: timeTab },
  { name: 'access', make: accessTab },
];

const WAIT_MILLISECONDS = 1500;

// `tools`: {link, confirm, askName, editLimits}: what tabs need of JupyterLab.
export function sidePanel(Widget, tools) {
  class SidePanel extends Widget {
    constructor() {
      super();
      this.id = 'sandbox-kernel-panel';
      this.addClass('jp-SandboxPanel');
      this._status = element('p', { className: 'jp-SandboxPanel-status', attributes: { role: 'status' } });
      const link = withNotice(tools.link, () => this._busy && this.say(WAITING));
      this._context = { ...tools, link, say: (text, tone = '') => this.say(text, tone), run: (work) => this.run(work) };
      this._tabs = TABS.map((tab) => this._makeTab(tab));
      const bar = element('div', {
        className: 'jp-SandboxPanel-tabs',
        attributes: { role: 'tablist', 'aria-label': 'Sandbox' },
        children: this._tabs.map(({ button }) => button),
      });
      bar.addEventListener('keydown', (event) => this._moveTab(event));
      this._none = element('p', {
        className: 'jp-SandboxPanel-empty',
        text: 'No notebook with a running Sandbox kernel is in front. Open one, or choose the kernel with Kernel → Change Kernel.',
      });
      this.node.append(bar, this._status, this._none, ...this._tabs.map(({ body }) => body));
      this.select('changes', false);
      tools.link.changed.connect((_link, { why }) => {
        // What was said is about the state before that cell.
        if (why === 'cell' && !this._busy) this.say('');
        this.refresh();
      });
      // Buttons of another page may have been pressed meanwhile.
      window.addEventListener('focus', () => this.refresh());
    }

    onAfterShow() {
      this.refresh();
    }

    // Shows a line about what was done; screen readers speak it. The text may come from the sandbox.
    say(text, tone = '') {
      text ??= '';
      this._status.textContent = text.slice(0, 2000);
      this._status.dataset.tone = tone;
    }

    // Does something on a button's behalf: its failure is shown, and while it is under way buttons do nothing.
    async run(work) {
      if (this._busy) return;
      this._busy = true;
      this.node.setAttribute('aria-busy', 'true');
      try {
        this.say(await work());
      } catch (error) {
        this.say(error.message, 'bad');
      } finally {
        this._busy = false;
        this.node.removeAttribute('aria-busy');
      }
    }

    select(name, focus = true) {
      if (name !== this._selected && !this._busy) this.say('');
      this._selected = name;
      for (const tab of this._tabs) {
        const chosen = tab.name === name;
        tab.button.setAttribute('aria-selected', String(chosen));
        tab.button.tabIndex = chosen ? 0 : -1;
        tab.body.hidden = !chosen || !tools.link.current;
        if (chosen && focus) tab.button.focus();
      }
      this.refresh();
    }

    get view() {
      return this._tabs.find(({ name }) => name === this._selected).view;
    }

    // Draws the chosen tab anew. One request at a time: what changed meanwhile is seen by the one after it.
    async refresh() {
      const panel = tools.link.current;
      this._none.hidden = panel !== null;
      for (const { name, body } of this._tabs) body.hidden = panel === null || name !== this._selected;
      if (panel !== this._shown) this.say('');
      this._shown = panel;
      if (panel === null || !this.isVisible) return;
      this._again = true;
      if (this._drawing) return;
      this._drawing = true;
      const late = setTimeout(() => this._status.textContent || this.say(WAITING), WAIT_MILLISECONDS);
      try {
        while (this._again && tools.link.current) {
          this._again = false;
          await this.view.refresh(tools.link.current);
        }
      } catch (error) {
        this.say(error.message, 'bad');
      } finally {
        clearTimeout(late);
        if (this._status.textContent === WAITING) this.say('');
        this._drawing = false;
      }
    }

    _makeTab({ name, make }) {
      const body = element('div', {
        className: 'jp-SandboxPanel-body',
        attributes: { role: 'tabpanel', id: `sandbox-kernel-${name}` },
      });
      const button = control(`tab-${name}`, 'button', {
        attributes: { type: 'button', role: 'tab', 'aria-controls': `sandbox-kernel-${name}` },
      });
      body.setAttribute('aria-label', button.textContent);
      button.addEventListener('click', () => this.select(name));
      return { name, button, body, view: make(body, this._context) };
    }

    _moveTab(event) {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      const at = this._tabs.findIndex(({ name }) => name === this._selected);
      this.select(this._tabs[(at + step + this._tabs.length) % this._tabs.length].name);
      event.preventDefault();
    }
  }
  return new SidePanel();
}
