// The side panel *Sandbox* and its tab "Access".

// The tab "Access": what cells may touch, the limits in force, and on request the measured report.
import { changesTab } from './changes-tab.js';
import { bar, button, control, element, folded, megabytesText, paragraph, parseMegabytes, parseSeconds, redraw, secondsText } from './dom.js';
import { WAITING, withNotice } from './kernel-link.js';
import { readOverview, readReport } from './panel-facts.js';
import { timeTab } from './time-tab.js';

export function accessTab(body, { link, run, editLimits, restart }) {
  let panel = null;
  let overview = null;
  let report = null;

  const measure = () =>
    run(async () => {
      // The command may come before the tab was drawn for the first time.
      panel = link.current;
      overview ??= readOverview(await link.ask(panel, 'overview'));
      report = readReport(await link.ask(panel, 'report'));
      draw();
      // It stands below what cells may touch.
      body.querySelector('.jp-SandboxPanel-report').scrollIntoView({ block: 'start' });
      const count = (state) => report.lines.filter((line) => line.state === state).length;
      return `Measured: ${count('enforced')} of ${report.lines.length} lines are enforced, ${count('not enforced')} are not.`;
    });

  async function refresh(current) {
    if (current !== panel) report = null;
    panel = current;
    overview = readOverview(await link.ask(panel, 'overview'));
    draw();
  }

  function draw() {
    const { limits, rows, line } = overview;
    const all = [['time', `${secondsText(parseSeconds(limits.timeout))} for each cell`], ['memory', megabytesText(parseMegabytes(limits.memory))], ...rows];
    const list = element('dl', {
      className: 'jp-SandboxPanel-access',
      children: all.flatMap(([name, text]) => [element('dt', { text: name }), element('dd', { children: [folded(text)] })]),
    });
    const buttons = bar(button('change-limits', () => editLimits()), button('restart', () => restart()), button('report', measure));
    redraw(body, buttons, list, paragraph('As a line for a cell:'), element('code', { text: line }), ...(report ? [drawn(report)] : []));
  }

  function drawn({ isolation, lines, weaknesses }) {
    const rows = lines.map(({ area, name, state, evidence }) =>
      element('tr', {
        attributes: { 'data-state': state, title: evidence },
        children: [element('td', { text: area }), element('th', { text: name, attributes: { scope: 'row' } }), element('td', { text: state })],
      }),
    );
    return element('section', {
      className: 'jp-SandboxPanel-report',
      attributes: { 'aria-label': 'measured report' },
      children: [paragraph(`Measured on this machine (${isolation})`, 'jp-SandboxPanel-title'), element('table', { children: rows }), ...weaknesses.map((text) => paragraph(text))],
    });
  }

  return { refresh, measure };
}

// The side panel "Sandbox": three tabs about the current notebook. Each tab is a file of its own.

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
