// Makes the plugins of this extension. `shared(name)` returns a module that JupyterLab shares.
//
// Each plugin can be switched off separately: `jupyter labextension disable sandbox-kernel:limits`.
import { commandsPlugin } from './commands.js';
import { framesPlugin } from './frames.js';
import { highlightPlugin } from './highlight.js';
import { limitsPlugin } from './limits-item.js';
import { offersPlugin } from './offers.js';
import { receiptPlugin } from './receipt.js';
import { reopenedPlugin } from './reopened.js';
import { rightsPlugin } from './rights.js';

export function plugins(shared) {
  return Promise.all([commandsPlugin, framesPlugin, highlightPlugin, limitsPlugin, offersPlugin, receiptPlugin, reopenedPlugin, rightsPlugin].map((make) => make(shared)));
}
