// How long the browser has to begin saving a file.
const REVOKE_MILLISECONDS = 60000;

// Creates an element. All elements of this extension are made here; text is always textContent, never markup.
export function element(tag, { className = '', text = '', attributes = {}, children = [] } = {}) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// Saves bytes under a name, as the browser saves files; never as a kind that it would show.
export function saveFile(name, bytes) {
  const href = URL.createObjectURL(new Blob([bytes], { type: 'application/octet-stream' }));
  element('a', { attributes: { href, download: name } }).click();
  setTimeout(() => URL.revokeObjectURL(href), REVOKE_MILLISECONDS);
}
