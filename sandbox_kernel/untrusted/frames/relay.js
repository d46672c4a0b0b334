// The script of the outer document: gives the inner one what to show, and passes messages between it and the page.
// Messages of the inner document are counted and bounded. In pages without our extension it finds libraries by itself:
// it asks the other frames of the page, and checks what it gets by its SHA-256.
(() => {
  const inner = document.querySelector('iframe');
  const payload = JSON.parse(document.getElementById('payload').textContent);
  const LIMITS = { perSecond: 240, bytes: 1 << 20, answers: 200, source: 32 << 20, saved: 64 << 20, upload: 8 << 20, uploadSeconds: 10, message: 80 << 20 };
  const KINDS = new Set(['ready', 'height', 'pong', 'refused', 'comm', 'widgets', 'needs', 'save']);
  const kept = new Map();
  let budget = LIMITS.perSecond;
  let answers = LIMITS.answers;
  let uploaded = 0;
  let isReady = false;
  setInterval(() => { uploaded = 0; }, LIMITS.uploadSeconds * 1000);
  setInterval(() => { budget = LIMITS.perSecond; }, 1000);
  const down = (item, ports = []) => inner.contentWindow.postMessage(item, '*', [...ports]);

  // What JSON and buffers hold can be counted; a Map or an error would carry anything uncounted. Values may stand in a
  // message many times over, so counting ends at a limit too.
  const isPlain = (value) => Array.isArray(value) || Object.getPrototypeOf(value) === Object.prototype;
  const size = (value, depth = 0) => {
    if (typeof value === 'string') return value.length;
    if (typeof value !== 'object' || value === null) return 8;
    if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) return value.byteLength;
    if (depth > 30 || !isPlain(value)) return Infinity;
    let sum = 8;
    for (const key of Object.keys(value)) {
      sum += key.length + size(value[key], depth + 1);
      if (sum > LIMITS.message) return Infinity;
    }
    return sum;
  };
  const bytes = (base64) => Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const unpacked = async (base64) => {
    return new Response(new Blob([bytes(base64)]).stream().pipeThrough(new DecompressionStream('gzip'))).text();
  };
  const digest = async (text) => {
    const bytes = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text));
    return [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  };

  const waiting = new Map();
  const library = (name) => {
    if (kept.has(name)) return Promise.resolve(kept.get(name));
    return new Promise((use, refuse) => {
      let tries = 100;
      const ask = () => {
        if (kept.has(name)) return;
        if (tries-- === 0) refuse(new Error('not found'));
        for (let at = 0; at < Math.min(parent.length, 500); at += 1) parent[at].postMessage({ sandboxWants: name }, '*');
        setTimeout(ask, 250);
      };
      waiting.set(name, use);
      ask();
    });
  };
  const take = async (name, source) => {
    if (!waiting.has(name) || typeof source !== 'string' || source.length > LIMITS.source) return;
    if ((await digest(source)) !== name) return;
    kept.set(name, source);
    waiting.get(name)?.(source);
    waiting.delete(name);
  };

  // Widgets of a saved notebook: their state follows when their manager is there.
  let widgetsStarted = null;
  const widgets = new Promise((use) => { widgetsStarted = use; });
  const MISSING = '<p>This output needs the code of a library, which is not in this page. Export the notebook where sandbox-kernel is installed, or run it with %sandbox --self-contained.</p>';
  const fill = async () => {
    for (const item of payload) {
      try {
        if (item.type === 'keep') kept.set(item.sha256, await unpacked(item.gzip));
        else if (item.type === 'needs') down({ type: 'library', source: await library(item.sha256) });
        else if (item.type === 'comm') {
          await widgets;
          down({ ...item, buffers: item.buffers.map((part) => bytes(part).buffer) });
        } else down(item);
      } catch {
        down({ type: 'show', html: MISSING });
        return;
      }
    }
  };

  addEventListener('message', ({ source, data, ports }) => {
    if (typeof data !== 'object' || data === null) return;
    if (source === inner.contentWindow) {
      if (budget-- <= 0 || !KINDS.has(data.type)) return;
      if (data.type === 'ready') {
        if (isReady) return; // code of the output says so: it would get the port that is for our loader
        isReady = true;
        fill();
      }
      if (data.type === 'widgets') widgetsStarted();
      // A file is passed on only from an output in which the user has clicked or typed.
      const isSaved = data.type === 'save';
      if (isSaved && !navigator.userActivation.hasBeenActive) return;
      // Files of widgets are the buffers of a comm message; they have a budget of their own, with files to be saved.
      const held = isSaved ? data.file : data.type === 'comm' && Array.isArray(data.buffers) ? data.buffers : null;
      const files = held ? size(held) : 0;
      const most = isSaved ? LIMITS.saved : LIMITS.upload;
      if (size(data) - files > LIMITS.bytes || (files > LIMITS.bytes && uploaded + files > most)) {
        const isFile = files > LIMITS.bytes;
        parent.postMessage({ type: 'dropped', bytes: size(data), most: isFile ? most : LIMITS.bytes, isFile, isSaved, sandboxFrame: 1 }, '*');
        return;
      }
      if (files > LIMITS.bytes) uploaded += files;
      parent.postMessage({ ...data, sandboxFrame: 1 }, '*');
    } else if (source === parent && data.sandboxFrame === 1) {
      if (data.type === 'theme') document.documentElement.style.colorScheme = data.dark ? 'dark' : 'light';
      down(data, ports);
    } else if (typeof data.sandboxWants === 'string' && kept.has(data.sandboxWants) && answers-- > 0) {
      source?.postMessage({ sandboxHas: data.sandboxWants, source: kept.get(data.sandboxWants) }, '*');
    } else if (typeof data.sandboxHas === 'string') {
      take(data.sandboxHas, data.source);
    }
  });
})();
