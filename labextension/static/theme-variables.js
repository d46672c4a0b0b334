// Colours and fonts of the page's theme, which widgets in frames use: variables of JupyterLab, and nothing else of the page.
const COLOURS = ['brand', 'accent', 'success', 'info', 'warn', 'error', 'border', 'layout', 'content-font', 'ui-font', 'inverse-layout'];
const OTHERS = [
  ...['ui-font-family', 'ui-font-size1', 'content-font-family', 'code-font-family', 'code-font-size', 'border-width', 'content-link-color'],
  ...['content-line-height', 'code-line-height', 'rendermime-table-row-background', 'rendermime-table-row-hover-background'],
  ...[1, 2, 3, 4, 5].map((level) => `content-font-size${level}`),
];
const NAMES = [...COLOURS.flatMap((name) => [0, 1, 2, 3, 4].map((level) => `--jp-${name}-color${level}`)), ...OTHERS.map((name) => `--jp-${name}`)];

export function themeVariables() {
  const style = getComputedStyle(document.body);
  return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(name).trim()]).filter(([, value]) => value));
}
