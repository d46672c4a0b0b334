// The tab "Access": what cells may touch, the limits in force, and on request the measured report.
import { element } from './dom.js';
import { readOverview, readReport } from './panel-facts.js';
import { bar, button, paragraph } from './parts.js';
import { wordsForIsolation } from './receipt-facts.js';

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
      return `Measured: ${report.lines.length} lines.`;
    });

  async function refresh(current) {
    if (current !== panel) report = null;
    panel = current;
    overview = readOverview(await link.ask(panel, 'overview'));
    draw();
  }

  function draw() {
    const { limits, rows, line } = overview;
    const all = [['time', `${limits.timeout} a cell`], ['memory', limits.memory], ...rows];
    const list = element('dl', {
      className: 'jp-SandboxPanel-access',
      children: all.flatMap(([name, text]) => [element('dt', { text: name }), element('dd', { text })]),
    });
    const buttons = bar(button('Change…', () => editLimits()), button('Restart, keeping variables…', () => restart()), button('Measure what holds (report)', measure));
    body.replaceChildren(buttons, list, paragraph('As a line for a cell:'), element('code', { text: line }), ...(report ? [drawn(report)] : []));
  }

  function drawn({ head, lines, weaknesses }) {
    const rows = lines.map(({ area, name, state, evidence }) =>
      element('tr', {
        attributes: { 'data-state': state, title: evidence },
        children: [element('td', { text: area }), element('th', { text: name, attributes: { scope: 'row' } }), element('td', { text: state })],
      }),
    );
    return element('section', {
      className: 'jp-SandboxPanel-report',
      attributes: { 'aria-label': 'measured report' },
      children: [paragraph(`Measured on this machine (${wordsForIsolation(head)})`, 'jp-SandboxPanel-title'), element('table', { children: rows }), ...weaknesses.map((text) => paragraph(text))],
    });
  }

  return { refresh, measure };
}
