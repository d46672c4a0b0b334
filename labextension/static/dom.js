// Creates an element. All elements of this extension are made here; text is always textContent, never markup.
export function element(tag, { className = '', text = '', attributes = {}, children = [] } = {}) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
