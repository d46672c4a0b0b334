// The only script that may start in the inner document of a frame: the policy names its hash. It runs before any code of
// the output, takes away what no policy governs (WebRTC, <link> hints), and then evaluates what the outer document sends.
(() => {
  const { apply } = Reflect;
  const first = Document.prototype.querySelector, { preventDefault, composedPath } = Event.prototype, { addEventListener: hear } = EventTarget.prototype;
  const { isArray } = Array;
  // Code of the output could otherwise change what the checks below use.
  for (const used of [RegExp.prototype, Reflect]) Object.freeze(used);
  const NAMES = 'link|iframe|frame|frameset|object|embed|portal|fencedframe|meta|base|applet';
  // What a template of XML holds is not found by querySelector, so there is none.
  const BAD_ANYWHERE = `*|template, *|${NAMES.split('|').join(', *|')}`;
  const BAD = new RegExp(`^(?:${NAMES})$`, 'i');
  const BAD_TAG = new RegExp(`<(/?)(?=(?:[^\\s<>:]*:)?(?:${NAMES})(?![a-z0-9]))`, 'gi');
  const regexTest = RegExp.prototype.test, replace = String.prototype.replace, slice = String.prototype.slice;
  const lastIndexOf = String.prototype.lastIndexOf;
  const harmless = (name) => {
    const text = `${name}`;
    const local = apply(slice, text, [apply(lastIndexOf, text, [':']) + 1]);
    return apply(regexTest, BAD, [local]) ? 'x-removed' : text;
  };
  // A tag can only come from its literal name after '<', so a textual replacement is enough for whole documents.
  const tame = (markup) => apply(replace, `${markup}`, [BAD_TAG, '<$1x-removed-']);
  // Where there are no Trusted Types this throws, and nothing is shown: closed, not open.
  const raw = trustedTypes.createPolicy('raw', { createHTML: (text) => text });
  trustedTypes.createPolicy('default', {
    createHTML: (text, _type, sink) => (/srcdoc/i.test(sink) ? '' : tame(text)),
    createScript: (text) => text,
    createScriptURL: () => null,
  });

  const wrap = (owner, name, make) => {
    const real = owner && owner[name];
    if (real) Object.defineProperty(owner, name, { value: make(real), writable: false, configurable: false });
  };
  // A library's own policy returns plain strings, which the default policy then sees.
  wrap(TrustedTypePolicyFactory.prototype, 'createPolicy', () => (name, rules) => ({ name, ...rules }));
  // Libraries press links that are in no document: the window does not hear of it.
  const heard = (made) => {
    if (made instanceof HTMLAnchorElement) apply(hear, made, ['click', linkClicked]);
    return made;
  };
  wrap(Document.prototype, 'createElement', (real) => function createElement(name, options) {
    const safe = harmless(name);
    return heard(options === undefined ? apply(real, this, [safe]) : apply(real, this, [safe, options]));
  });
  wrap(Document.prototype, 'createElementNS', (real) => function createElementNS(space, name) {
    return heard(apply(real, this, [space, harmless(name)]));
  });
  wrap(DOMImplementation.prototype, 'createDocument', (real) => function createDocument(space, name) {
    return apply(real, this, [space, name === null ? null : harmless(name ?? '')]);
  });
  wrap(CustomElementRegistry.prototype, 'define', (real) => function define(name, made) {
    return apply(real, this, [name, made]); // without { extends: 'link' }
  });
  // For a click or Enter with Shift Firefox opens a window in spite of the sandbox, whoever made the event.
  const HELD = [MouseEvent, KeyboardEvent].flatMap(({ prototype }) => ['shiftKey', 'ctrlKey', 'metaKey', 'altKey'].map((key) => Object.getOwnPropertyDescriptor(prototype, key).get));
  const room = (frames) => frames > 0 && room(frames - 1); // throws where the stack is so full that the keys cannot be read
  const isHeld = (event) => {
    room(50);
    for (let number = 0; number < 8; number += 1) try { if (apply(HELD[number], event, [])) return true; } catch {} // another kind
    return false;
  };
  wrap(EventTarget.prototype, 'dispatchEvent', (real) => function dispatchEvent(event) { return isHeld(event) || apply(real, this, [event]); });
  const parser = new DOMParser(), parseReal = DOMParser.prototype.parseFromString;
  const parse = (text, type) => apply(parseReal, parser, [raw.createHTML(text), type]);
  wrap(DOMParser.prototype, 'parseFromString', (real) => function parseFromString(text, type) {
    const kind = `${type}`;
    const made = apply(real, this, [raw.createHTML(kind === 'text/html' ? tame(text) : `${text}`), kind]);
    if (kind !== 'text/html' && apply(first, made, [BAD_ANYWHERE]) !== null) {
      throw new TypeError('not in a sandboxed output');
    }
    return made;
  });

  const gone = (owner, isGone) => {
    for (const name of Object.getOwnPropertyNames(owner)) if (isGone(name)) delete owner[name];
  };
  const KEPT = /^(?:innerHTML|outerHTML|insertAdjacentHTML|getHTML|createHTMLDocument)$/;
  const html = (name) => /html/i.test(name) && !KEPT.test(name);
  const KINDS = [Element, ShadowRoot, Document, Range, HTMLElement, HTMLTemplateElement, DocumentFragment];
  for (const kind of KINDS) gone(kind.prototype, html);
  gone(Document, html);
  gone(TrustedHTML, (name) => /literal/i.test(name));
  gone(Document.prototype, (name) => /^(?:write|writeln|open|close|execCommand|requestStorageAccess.*)$/.test(name));
  const NO_POLICY = /RTC|XSLT|^WebTransport|^Worker$|^SharedWorker$|Worklet|^fetchLater$|^PaymentRequest$|[sS]peech|^documentPictureInPicture$|^EyeDropper$/;
  gone(window, (name) => NO_POLICY.test(name));
  // Of the browser itself an output may know what it is, and little more: no media keys, no badge, no vibration.
  const KNOWN = /^(?:constructor|vendor|vendorSub|product|productSub|app[A-Z].*|platform|userAgent.*|language|languages|onLine|webdriver|plugins|mimeTypes|pdfViewerEnabled|maxTouchPoints|hardwareConcurrency|deviceMemory|doNotTrack|cookieEnabled|javaEnabled|userActivation|connection|gpu|clipboard|permissions|sendBeacon)$/;
  gone(Navigator.prototype, (name) => !KNOWN.test(name));
  gone(HTMLVideoElement.prototype, (name) => /PictureInPicture|PresentationMode/.test(name));
  for (const name of ['open', 'alert', 'confirm', 'print']) window[name] = () => null;
  window.prompt = (_question, usual) => (usual === undefined ? null : `${usual}`); // as if the user had pressed Enter

  const post = parent.postMessage.bind(parent);
  const tell = (message, transfer) => post(message, '*', transfer);

  // What the policy refused, by kind and host, so that the page can say it in a sentence.
  const refused = new Set();
  const tellRefused = (what, address) => {
    let host;
    try {
      host = new URL(address).host;
    } catch {
      return;
    }
    if (!host || refused.size >= 20 || refused.has(what + host)) return;
    refused.add(what + host);
    tell({ type: 'refused', what, host });
  };
  const WORDS = {
    'script-src': 'script', 'img-src': 'picture', 'style-src': 'style', 'font-src': 'font', 'connect-src': 'data', 'media-src': 'media',
  };
  addEventListener('securitypolicyviolation', ({ effectiveDirective, blockedURI }) => {
    tellRefused(WORDS[effectiveDirective.replace(/-(?:elem|attr)$/, '')] ?? 'page', blockedURI);
  });

  // Event handler attributes do not run under this policy: their code becomes the handler, with the names that it has in a
  // page: those of its element, of its form and of the document. Wrong code is the loss of that handler alone.
  const listen = (node, name, code) => {
    try {
      const called = new Function('event', `with (document) with (this.form ?? {}) with (this) {${code}\n}`);
      node[name.replace(/^x-/, '')] = called;
    } catch (error) {
      console.error(error);
    }
  };
  // Fields of a form can have the names of these methods.
  const { querySelectorAll: below, getAttributeNames, getAttribute, removeAttribute } = Element.prototype;
  // `looked` holds the nodes that were looked at: of nodes that were added one into the other, each is reported.
  const handlers = (root, use = listen, looked = new Set()) => {
    if (looked.has(root)) return;
    for (const node of [root, ...apply(below, root, ['*'])]) {
      if (looked.has(node)) continue;
      looked.add(node);
      for (const name of apply(getAttributeNames, node, [])) {
        if (!/^(?:x-)?on[a-z]/.test(name)) continue;
        const code = apply(getAttribute, node, [name]);
        apply(removeAttribute, node, [name]);
        use(node, name, code);
      }
    }
  };
  const HANDLERS = Object.getOwnPropertyNames(HTMLElement.prototype).filter((name) => /^on[a-z]/.test(name));

  // A link would load another page in place of the output, and the policy would leave an empty frame. As a link to a new
  // window, which the sandbox refuses, it does nothing by itself, whoever stops the event on its way.
  const XLINK = 'http://www.w3.org/1999/xlink';
  // A file that an output wants to save goes to the page, which asks the user: the sandbox saves nothing.
  const blobs = new Map();
  wrap(URL, 'createObjectURL', (real) => function createObjectURL(thing) {
    const address = apply(real, URL, [thing]);
    if (thing instanceof Blob) blobs.set(address, thing);
    return address;
  });
  wrap(URL, 'revokeObjectURL', (real) => function revokeObjectURL(address) {
    blobs.delete(`${address}`);
    return apply(real, URL, [address]);
  });
  const fileAt = (address) => {
    const [, kind, text] = /^data:([^,]*),(.*)$/s.exec(address) ?? [];
    if (kind === undefined) return blobs.get(address);
    const type = kind.split(';')[0];
    if (!/;\s*base64\s*$/i.test(kind)) return new Blob([decodeURIComponent(text)], { type });
    return new Blob([Uint8Array.from(atob(decodeURIComponent(text)), (letter) => letter.charCodeAt(0))], { type });
  };
  const askToSave = (name, file) => file.arrayBuffer().then((bytes) => tell({ type: 'save', name, kind: file.type, file: bytes }, [bytes]));
  const follow = (address, url) => {
    if (address.startsWith('#')) {
      const name = decodeURIComponent(address.slice(1));
      (document.getElementById(name) ?? document.getElementsByName(name)[0])?.scrollIntoView();
    } else if (url?.protocol === 'javascript:') (0, eval)(decodeURIComponent(url.href.slice('javascript:'.length)));
    else if (url) tellRefused('page', url.href);
  };
  // In spite of the sandbox browsers open a window for a link that is pressed with a key held or by the middle button, and Firefox
  // a connection where the button goes down. A link may stand in a shadow tree (they are open), in what <use> repeats, be any
  // element of MathML, and get its address later. What a key presses may be moved, in the meantime, into a link of no document.
  wrap(Element.prototype, 'attachShadow', (real) => function attachShadow(rules) { return apply(real, this, [{ ...rules, mode: 'open' }]); });
  const spaceOf = Object.getOwnPropertyDescriptor(Element.prototype, 'namespaceURI').get;
  const localNameOf = Object.getOwnPropertyDescriptor(Element.prototype, 'localName').get;
  const keyOf = Object.getOwnPropertyDescriptor(KeyboardEvent.prototype, 'key').get;
  const LINKS = /^(?:a|area|use)$/i, PRESSED_BY_KEYS = /^(?:a|area|use|button|input|summary)$/i;
  const stop = (event, names) => {
    const path = apply(composedPath, event, []);
    for (let at = 0; at < path.length; at += 1) {
      try {
        const isNamed = apply(regexTest, names, [apply(localNameOf, path[at], [])]);
        if (isNamed || apply(spaceOf, path[at], []) === 'http://www.w3.org/1998/Math/MathML') apply(preventDefault, event, []);
      } catch {} // no element
    }
  };
  for (const type of ['mousedown', 'auxclick']) addEventListener(type, (event) => stop(event, LINKS), true);
  addEventListener('click', (event) => { if (isHeld(event)) stop(event, LINKS); }, true);
  for (const type of ['keydown', 'keypress', 'keyup']) {
    addEventListener(type, (event) => {
      const key = apply(keyOf, event, []), isPress = key === 'Enter' || (key === ' ' && type === 'keyup'); // not a blank that is typed
      if (isPress && isHeld(event)) stop(event, PRESSED_BY_KEYS);
    }, true);
  }
  const clicked = new WeakSet();
  const linkClicked = (event) => {
    if (clicked.has(event)) return;
    clicked.add(event);
    const link = event.composedPath().find((node) => node instanceof Element && /^(?:a|area)$/i.test(node.localName));
    const address = link?.getAttribute('href') ?? link?.getAttributeNS(XLINK, 'href');
    if (typeof address !== 'string') return;
    const file = link.hasAttribute('download') ? fileAt(address) : undefined; // its address may be taken back at once
    const target = link.getAttribute('target'), held = isHeld(event);
    link.setAttribute('target', '_blank');
    setTimeout(() => {
      if (target === null) link.removeAttribute('target');
      else link.setAttribute('target', target);
      if (event.defaultPrevented && !held) return;
      if (file) askToSave(link.getAttribute('download'), file);
      else follow(address, URL.parse(address, 'about:srcdoc'));
    });
  };
  addEventListener('click', linkClicked, true);

  // A program asks which element it stands in to find its place.
  let current = null;
  Object.defineProperty(document, 'currentScript', { get: () => current, configurable: true });
  const run = (source) => (0, eval)(source);
  const runModule = (source) => import(URL.createObjectURL(new Blob([source], { type: 'text/javascript' })));
  const SCRIPT = /^(?:(?:text|application)\/(?:x-)?(?:java|ecma)script|module)?$/i;
  let height = 0;
  let hasLibrary = false;
  const show = (markup) => {
    const inert = parse(markup, 'text/html');
    for (const { src } of inert.querySelectorAll('script[src]')) tellRefused('script', src);
    for (const { href } of inert.querySelectorAll('link[href]')) tellRefused('style', href);
    const scripts = [...inert.querySelectorAll('script')].filter(({ src, type }) => !src && SCRIPT.test(type));
    if (scripts.length === 0) height = -Infinity; // nothing is drawn later, so an empty output says that it is empty
    const sources = scripts.map(({ textContent, type }) => ({ source: textContent, isModule: type === 'module' }));
    scripts.forEach((script, number) => {
      script.textContent = ''; // the element stays: libraries look for what follows it
      script.setAttribute('x-number', number);
    });
    handlers(inert.documentElement, (node, name, code) => node.setAttribute(`x-${name}`, code)); // before the policy complains of each
    document.body.innerHTML = inert.head.innerHTML + inert.body.innerHTML;
    for (const { name, value } of inert.body.attributes) if (name === 'class' || name === 'style') document.body.setAttribute(name, value);
    if (!hasLibrary) document.body.classList.add('jp-RenderedHTMLCommon'); // figures of libraries have looks of their own
    new MutationObserver((list) => {
      const looked = new Set();
      for (const { type, target, addedNodes } of list) {
        for (const node of type === 'attributes' ? [target] : addedNodes) if (node instanceof Element) handlers(node, listen, looked);
      }
    }).observe(document.documentElement, { childList: true, subtree: true, attributeFilter: HANDLERS });
    handlers(document.body);
    const places = sources.map((_, number) => document.querySelector(`script[x-number="${number}"]`));
    for (const place of places) place?.removeAttribute('x-number');
    for (const [number, { source, isModule }] of sources.entries()) {
      current = isModule ? null : places[number];
      try {
        if (isModule) runModule(source).catch((error) => console.error(error));
        else run(source);
      } catch (error) {
        console.error(error);
      }
    }
    current = null;
    document.dispatchEvent(new Event('DOMContentLoaded'));
    dispatchEvent(new Event('load'));
  };

  const grow = () => {
    const now = Math.ceil(Math.max(document.documentElement.getBoundingClientRect().height, document.body.scrollHeight));
    if (Math.abs(now - height) > 2) tell({ type: 'height', height: (height = now) });
  };
  let watched = false;
  const watchHeight = () => {
    if (watched) return;
    watched = true;
    const observer = new ResizeObserver(grow);
    observer.observe(document.documentElement);
    observer.observe(document.body);
  };
  // The page must know where the user presses: it gives the keyboard to that frame only. It hears of it through a port that
  // came before any code of the output and that this code cannot reach; nor can it make an event that is trusted.
  let presses = null;
  const send = MessagePort.prototype.postMessage;
  for (const name of ['pointerdown', 'pointerup']) {
    addEventListener(name, (event) => { if (presses && event.isTrusted) apply(send, presses, [name]); }, { capture: true, passive: true });
  }
  // Tab may go from this frame straight into the next one.
  addEventListener('keydown', (event) => {
    if (presses && event.isTrusted && event.key === 'Tab') apply(send, presses, [event.shiftKey ? 'tab back' : 'tab']);
  }, { capture: true, passive: true });
  // Where the user was, for a frame that gets the keyboard back after another one took it.
  let focused = null;
  addEventListener('focusin', ({ target }) => { focused = target; });
  // In Firefox another frame may take the keyboard back before the press has moved it here.
  addEventListener('pointerdown', ({ target }) => { focused = target; }, { capture: true, passive: true });
  addEventListener('message', ({ source, data, ports }) => {
    if (source !== parent || typeof data !== 'object' || data === null || isArray(data)) return;
    if (data.type === 'presses' && !presses) {
      presses = ports[0];
      presses.onmessage = () => apply(send, presses, ['told']);
    }
    if (data.type === 'focus') {
      document.body.focus();
      if (focused?.isConnected) focused.focus();
    }
    if (data.type === 'ping') tell({ type: 'pong' });
    if (data.type === 'theme') {
      document.documentElement.style.colorScheme = data.dark ? 'dark' : 'light';
      document.documentElement.dataset.theme = data.dark ? 'dark' : 'light';
      for (const [name, value] of Object.entries(data.variables ?? {})) document.documentElement.style.setProperty(name, value);
    }
    if (data.type === 'library') {
      hasLibrary = true;
      try {
        run(data.source);
      } catch (error) {
        console.error(error);
      }
    }
    if (data.type === 'show') {
      show(data.html);
      watchHeight();
    }
  });
  tell({ type: 'ready' });
})();
