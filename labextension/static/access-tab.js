// The tab "Access": what cells may touch, the limits in force, and on request the measured report.
import { element } from './dom.js';
import { readOverview, readReport } from './panel-facts.js';
import { bar, button, folded, paragraph, redraw } from './parts.js';
import { megabytesText, parseMegabytes, parseSeconds, secondsText } from './units.js';

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
