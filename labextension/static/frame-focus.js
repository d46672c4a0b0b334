// Keeps the keyboard for the user: code in a frame may call focus() at any time and would get what the user types
// elsewhere. Focus that a frame takes without a press of the user in it goes back to where it was. A frame that has done it
// is hidden while the user types or clicks in the page, because a hidden frame gets no focus (an inert one does); after the
// fifth time in a short while it is removed.
import { lastPress } from './frame-presses.js';

const HIDDEN_MILLISECONDS = 1000;
const TAB_MILLISECONDS = 200;
const PRESS_MILLISECONDS = 1000;
const BACK_MILLISECONDS = 1000;
// The page gets no event when the focus goes from one frame to another.
const LOOK_MILLISECONDS = 50;
const SHORT_WHILE_MILLISECONDS = 10000;
const MOST_THEFTS = 5;

// Whether the user has pressed in the frame last, and not in the page or on a key there.
export function isPressed({ sincePress, sinceOwnEvent }) {
  return sincePress < PRESS_MILLISECONDS && sincePress < sinceOwnEvent;
}

// The frame that is next on the page, or the one before: Tab goes there, if not to something between.
function nextFrame(frames, from, isBack) {
  const side = isBack ? Node.DOCUMENT_POSITION_PRECEDING : Node.DOCUMENT_POSITION_FOLLOWING;
  const on = frames.filter((frame) => from.compareDocumentPosition(frame) & side && frame.checkVisibility({ visibilityProperty: true }));
  return on.reduce((best, frame) => (best && !(frame.compareDocumentPosition(best) & side) ? best : frame), null);
}

// `frames()` lists our frames. `enter(frame)` lets one take the focus (if the page gave it, the page would not see it go);
// `entered(frame)` is told when the user has gone into one; `remove(frame)` ends one that does not leave the keyboard alone.
export function guardFocus({ frames, enter, entered, remove }) {
  let last = null; // where the user is in the page
  let inside = null; // the frame that the user is in
  let showing = null;
  let looking = null;
  let awaited = { frame: null, until: 0 }; // a frame that gets the focus by Tab, or back from another one
  let own = -Infinity;
  const thefts = new WeakMap();
  const now = () => performance.now();
  addEventListener('focusin', ({ target }) => {
    if (target.tagName === 'IFRAME') return;
    last = target;
    inside = null;
  });
  const show = () => {
    for (const frame of frames()) frame.style.display = '';
  };
  const hideThieves = () => {
    clearTimeout(showing);
    for (const frame of frames()) if (thefts.has(frame)) frame.style.display = 'none';
    showing = setTimeout(show, HIDDEN_MILLISECONDS);
  };
  for (const name of ['keydown', 'pointerdown', 'pointerup', 'touchend']) {
    const note = () => {
      own = now();
      hideThieves();
    };
    addEventListener(name, note, { capture: true, passive: true });
  }
  // Tab goes into a frame, unless an editor has used the key. This listener comes after those of the page.
  addEventListener('keydown', ({ key, shiftKey, defaultPrevented }) => {
    if (key !== 'Tab' || defaultPrevented) return;
    show();
    awaited = { frame: nextFrame(frames(), document.activeElement, shiftKey), until: now() + TAB_MILLISECONDS };
  });
  const giveBack = (frame) => {
    if (inside) {
      awaited = { frame: inside, until: now() + BACK_MILLISECONDS };
      enter(inside);
    } else {
      frame.blur();
      window.focus();
      last?.focus();
    }
    const recent = [...(thefts.get(frame) ?? []), now()].filter((time) => now() - time < SHORT_WHILE_MILLISECONDS);
    thefts.set(frame, recent);
    hideThieves();
    if (recent.length >= MOST_THEFTS) remove(frame);
  };
  const look = () => {
    clearTimeout(looking);
    const frame = document.activeElement;
    if (!frames().includes(frame)) {
      inside = null;
      return;
    }
    const isAwaited = awaited.frame === frame && now() < awaited.until;
    const isEntered = isAwaited || isPressed({ sincePress: now() - lastPress(frame), sinceOwnEvent: now() - own });
    if (!isEntered && frame !== inside) giveBack(frame);
    else if (frame !== inside) {
      inside = frame;
      entered(frame);
    }
    looking = setTimeout(look, LOOK_MILLISECONDS);
  };
  addEventListener('blur', () => setTimeout(look)); // activeElement is set after the event
}
