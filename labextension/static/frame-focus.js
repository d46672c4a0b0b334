// Keeps the keyboard for the user: code in a frame may call focus() at any time and would get what the user types
// elsewhere. Focus that a frame takes without a click in it goes back. A frame that has done it is hidden while the user
// types or clicks in the page, because a hidden frame gets no focus (an inert one does); after the fifth time in a short
// while it is removed.
const TYPING_MILLISECONDS = 1000;
const TAB_MILLISECONDS = 200;
const ACTIVATION_MILLISECONDS = 6000;
const SHORT_WHILE_MILLISECONDS = 10000;
const MOST_THEFTS = 5;

// Whether the user has gone into the frame: 'yes', 'no', or 'ask' its outer document. A click in a frame activates the page
// too, without an event in the page; so an activation is the frame's if the page has had no event of its own that
// explains it, or if the pointer is there. The outer document, which is ours, is active only after a click inside it; but
// it stays so for a while, so its word counts only if the user has not just left the frame.
export function whoAsked({ sinceTab, sinceOwnEvent, sinceLeft, isActive, isPointerThere }) {
  if (sinceTab < TAB_MILLISECONDS) return 'yes';
  if (!isActive) return 'no';
  if (isPointerThere || sinceOwnEvent > ACTIVATION_MILLISECONDS) return 'yes';
  return sinceLeft > ACTIVATION_MILLISECONDS ? 'ask' : 'no';
}

// `frames()` lists our frames, `isActivated(frame)` asks the outer document of one, `remove(frame)` ends one that goes on.
export function guardFocus(frames, isActivated, remove) {
  let last = null;
  let showing = null;
  let over = null;
  let inside = null;
  let tab = -Infinity;
  let own = -Infinity;
  const thefts = new WeakMap();
  const left = new WeakMap();
  const now = () => performance.now();
  addEventListener('focusin', ({ target }) => {
    if (target.tagName !== 'IFRAME') last = target;
  });
  const show = () => {
    for (const frame of frames()) frame.style.display = '';
  };
  const hideThieves = () => {
    clearTimeout(showing);
    for (const frame of frames()) if (thefts.has(frame)) frame.style.display = 'none';
    showing = setTimeout(show, TYPING_MILLISECONDS);
  };
  const follow = (name, use) => addEventListener(name, use, { capture: true, passive: true });
  follow('pointerover', ({ target }) => {
    over = target;
  });
  for (const name of ['keydown', 'pointerdown', 'pointerup', 'touchend']) {
    follow(name, () => {
      own = now();
      if (inside) left.set(inside, own);
      inside = null;
      hideThieves();
    });
  }
  // Tab goes into a frame, unless an editor has used the key. This listener comes after those of the page.
  addEventListener('keydown', ({ key, defaultPrevented }) => {
    if (key !== 'Tab' || defaultPrevented) return;
    tab = now();
    show();
  });
  const takeBack = (frame) => {
    frame.blur();
    window.focus();
    last?.focus();
  };
  const count = (frame) => {
    const recent = [...(thefts.get(frame) ?? []), now()].filter((time) => now() - time < SHORT_WHILE_MILLISECONDS);
    thefts.set(frame, recent);
    hideThieves();
    if (recent.length >= MOST_THEFTS) remove(frame);
  };
  const giveBack = (frame) => {
    takeBack(frame);
    count(frame);
  };
  const check = async () => {
    const frame = document.activeElement;
    if (frame?.tagName !== 'IFRAME' || !frames().includes(frame)) return;
    const isActive = navigator.userActivation?.isActive ?? true;
    const isPointerThere = over === frame || frame.parentElement === over;
    const since = (time) => now() - time;
    const facts = { sinceTab: since(tab), sinceOwnEvent: since(own), sinceLeft: since(left.get(frame) ?? -Infinity) };
    const answer = whoAsked({ ...facts, isActive, isPointerThere });
    if (answer === 'no') return giveBack(frame);
    if (answer === 'ask') {
      // Meanwhile the keyboard is the page's: what the user types must not go into the frame.
      takeBack(frame);
      if (!(await isActivated(frame))) return count(frame);
      frame.focus();
    }
    inside = frame;
  };
  addEventListener('blur', () => setTimeout(check)); // activeElement is set after the event
}
