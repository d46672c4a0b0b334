// The module-federation container that JupyterLab loads; written by hand instead of by a bundler.
//
// JupyterLab runs this file as a plain script, calls init(scope) once with the modules it shares, and then
// get('./extension') and get('./style'). Everything else is in the ES modules next to this file.
(() => {
  const NAME = 'sandbox-kernel';
  const here = new URL('.', /** @type {HTMLScriptElement} */ (document.currentScript).src);
  let scope;

  // Chooses like bundled extensions do for singletons: the version that is loaded already, else the newest.
  async function module(name) {
    const versions = scope[name];
    if (!versions) throw new Error(`${NAME}: this JupyterLab shares no module ${name}`);
    const byAge = Object.keys(versions).sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
    const chosen = byAge.findLast((version) => versions[version].loaded) ?? byAge.at(-1);
    return (await versions[chosen].get())();
  }

  async function extension() {
    const { plugins } = await import(new URL('plugins.js', here).href);
    const made = await plugins((...names) => Promise.all(names.map(module)));
    return () => ({ __esModule: true, default: made });
  }

  function style() {
    const link = document.createElement('link');
    link.rel = 'stylesheet';
    link.href = new URL('style.css', here).href;
    document.head.append(link);
    return () => ({});
  }

  const page = /** @type {any} */ (window);
  page._JUPYTERLAB = page._JUPYTERLAB ?? {};
  page._JUPYTERLAB[NAME] = {
    init(given) {
      scope = given;
    },
    async get(name) {
      if (name === './extension') return extension();
      if (name === './style') return style();
      throw new Error(`${NAME}: there is no module ${name}`);
    },
  };
})();
