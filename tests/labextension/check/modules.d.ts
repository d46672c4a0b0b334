// Types for `tsc`: the modules that JupyterLab shares with this extension.
export interface Modules {
  '@codemirror/language': typeof import('@codemirror/language');
  '@codemirror/state': typeof import('@codemirror/state');
  '@codemirror/view': typeof import('@codemirror/view');
  '@jupyterlab/application': typeof import('@jupyterlab/application');
  '@jupyterlab/apputils': typeof import('@jupyterlab/apputils');
  '@jupyterlab/codemirror': typeof import('@jupyterlab/codemirror');
  '@jupyterlab/coreutils': typeof import('@jupyterlab/coreutils');
  '@jupyterlab/launcher': { ILauncher: import('@lumino/coreutils').Token<{ add(item: object): unknown }> };
  '@jupyterlab/notebook': typeof import('@jupyterlab/notebook');
  '@jupyterlab/rendermime': typeof import('@jupyterlab/rendermime');
  '@jupyterlab/services': typeof import('@jupyterlab/services');
  '@jupyterlab/statusbar': typeof import('@jupyterlab/statusbar');
  '@jupyterlab/ui-components': typeof import('@jupyterlab/ui-components');
  '@lezer/common': typeof import('@lezer/common');
  '@lezer/highlight': typeof import('@lezer/highlight');
  '@lumino/signaling': typeof import('@lumino/signaling');
  '@lumino/widgets': typeof import('@lumino/widgets');
}

// Returns modules that JupyterLab shares.
export type Shared = <Names extends (keyof Modules)[]>(
  ...names: Names
) => Promise<{ [Index in keyof Names]: Modules[Names[Index]] }>;
