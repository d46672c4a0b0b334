// The plugins of this extension. `shared(name)` gives a module of JupyterLab; each plugin file asks for what it needs.
//
// They are separate so that each can be switched off alone: `jupyter labextension disable sandbox-kernel:limits`.
import { highlightPlugin } from './highlight.js';
import { limitsPlugin } from './limits-item.js';
import { receiptPlugin } from './receipt.js';

export function plugins(shared) {
  return Promise.all([highlightPlugin, limitsPlugin, receiptPlugin].map((make) => make(shared)));
}
