// Keeps the keyboard for the user: code in a frame may call focus() at any time and would get what the user types
// elsewhere. Focus that a frame takes without a press of the user in it goes back to where it was. A frame that has done it
// is hidden while the user types or clicks in the page, because a hidden frame gets no focus (an inert one does); after the
// fifth time in a short while it is removed. No frame can focus another one: see frame-view.js. A cell's question, for which
// JupyterLab takes the focus, gives it back to the field in which the user writes.
import { lastPress, lastTab, placeOf, pressesTold } from './frame-view.js';

const HIDDEN_MILLISECONDS = 1000;
const TAB_MILLISECONDS = 200;
const PRESS_MILLISECONDS = 1000;
const BACK_MILLISECONDS = 1000;
// The page gets no event when the focus goes from one frame to another.
const LOOK_MILLISECONDS = 50;
const SHORT_WHILE_MILLISECONDS = 10000;
const MOST_THEFTS = 5;
const NOBODY = { frame: null, until: -Infinity };
const NOWHERE = { frame: null, since: -Infinity };

// Whether the user has pressed in the frame last, and not in another frame, in the page or on a key there.
export function isPressed({ sincePress, sinceElsewhere }) {
  return sincePress < PRESS_MILLISECONDS && sincePress < sinceElsewhere;
}

const FIELDS = '.cm-content, textarea, input:not(.jp-Stdin-input)';

// Whether the user writes in a field that loses the focus: what they did last was there, and did not run a cell.
function writesIn(field, { target, key, shiftKey, ctrlKey, altKey, metaKey }) {
  const runs = key === 'Enter' && (shiftKey || ctrlKey || altKey || metaKey);
  return Boolean(field?.isConnected && field.matches(FIELDS) && field.contains(target) && !runs);
}

// The frame that is next on the page, or the one before: Tab goes there, if not to something between.
function nextFrame(frames, from, isBack) {
  const side = isBack ? Node.DOCUMENT_POSITION_PRECEDING : Node.DOCUMENT_POSITION_FOLLOWING;
  const isAfter = (one, other) => placeOf(one).compareDocumentPosition(placeOf(other)) & side;
  const on = frames.filter((frame) => isAfter(from, frame) && frame.checkVisibility({ visibilityProperty: true }));
  return on.reduce((best, frame) => (best && !isAfter(frame, best) ? best : frame), null);
}

// `frames()` lists our frames. `enter(frame)` lets one take the focus (if the page gave it, the page would not see it go);
// `entered(frame)` is told when the user has gone into one; `remove(frame)` ends one that does not leave the keyboard alone.
export function guardFocus({ frames, enter, entered, remove }) {
  let last = null; // where the user is in the page
  let inside = NOWHERE; // the frame that the user has gone into
  let showing = null;
  let looking = null;
  let isAsking = false; // frames for presses that they have not told yet
  let awaited = NOBODY; // a frame that gets the focus by Tab, or back from another one
  let own = -Infinity;
  let newest = new KeyboardEvent('none'); // the last key or press of the user in the page
  const thefts = new WeakMap();
  const now = () => performance.now();
  const pressedOutside = (frame) => Math.max(...frames().filter((other) => other !== frame).map(lastPress));
  const isUsers = (frame) => isPressed({ sincePress: now() - lastPress(frame), sinceElsewhere: now() - Math.max(own, pressedOutside(frame)) });
  const arrived = () => Math.max(inside.since, lastPress(inside.frame));
  // The frame that the user is in: the newest press in any frame was in it.
  const usersFrame = () => (frames().includes(inside.frame) && pressedOutside(inside.frame) <= arrived() ? inside.frame : null);
  const focusedFrame = () => {
    const focused = document.activeElement?.shadowRoot?.activeElement;
    return frames().includes(focused) ? focused : null;
  };
  // The page has the focus, but nothing in it, and the user has done nothing there: code in a frame has called top.focus().
  const isDrawnOut = () => document.activeElement === document.body && usersFrame() !== null && own <= arrived();
  // Tab in the frame that the user is in may lead to the next one.
  const isTabbed = (frame) => {
    const { time, isBack } = lastTab(usersFrame());
    return now() - time < TAB_MILLISECONDS && nextFrame(frames(), usersFrame(), isBack) === frame;
  };
  const goBack = (frame) => {
    awaited = { frame, until: now() + BACK_MILLISECONDS };
    enter(frame);
  };
  addEventListener('focusin', (event) => {
    if (/** @type {Element} */ (event.composedPath()[0]).tagName === 'IFRAME') return;
    const field = /** @type {HTMLElement | null} */ (event.relatedTarget);
    const asked = /** @type {Element} */ (event.target).matches?.('.jp-Stdin-input');
    if (asked && writesIn(field, newest)) field.focus();
    else last = event.target;
    inside = NOWHERE;
    awaited = NOBODY;
  });
  // The page gets the focus. Where the user has left a frame by Tab, an element gets it in the same moment.
  addEventListener('focus', () => {
    if (own > arrived()) inside = NOWHERE;
    setTimeout(() => {
      if (isDrawnOut()) goBack(inside.frame);
    });
  });
  // Keys that were meant for the frame would be commands of the notebook.
  const hold = (event) => {
    if (!isDrawnOut()) return;
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  for (const name of ['keydown', 'keypress', 'keyup']) addEventListener(name, hold, { capture: true });
  const show = () => {
    for (const frame of frames()) frame.style.display = '';
  };
  const hideThieves = () => {
    clearTimeout(showing);
    const kept = usersFrame();
    for (const frame of frames()) if (thefts.has(frame) && frame !== kept) frame.style.display = 'none';
    showing = setTimeout(show, HIDDEN_MILLISECONDS);
  };
  for (const name of ['keydown', 'pointerdown', 'pointerup', 'touchend']) {
    const note = (event) => {
      if (event.isTrusted) newest = event;
      own = now();
      awaited = NOBODY;
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
    const users = usersFrame() ?? frames().find(isUsers);
    frame.blur();
    window.focus(); // at once: if it has the focus at the next look, it has taken it again
    if (users) goBack(users);
    else last?.focus();
    const recent = [...(thefts.get(frame) ?? []), now()].filter((time) => now() - time < SHORT_WHILE_MILLISECONDS);
    thefts.set(frame, recent);
    hideThieves();
    if (recent.length >= MOST_THEFTS) remove(frame);
  };
  const isAllowed = (frame) => {
    const isAwaited = awaited.frame === frame && now() < awaited.until;
    return frame === usersFrame() || isAwaited || isUsers(frame) || isTabbed(frame);
  };
  // The page may have taken the focus back until the answer comes: it was a theft all the same.
  const ask = async (frame) => {
    isAsking = true;
    await Promise.all([frame, usersFrame()].map(pressesTold));
    isAsking = false;
    if (!isAllowed(frame)) giveBack(frame);
    look();
  };
  const look = () => {
    clearTimeout(looking);
    const frame = focusedFrame();
    if (!frame) return;
    if (!isAllowed(frame)) {
      if (!isAsking) ask(frame);
    } else if (frame !== usersFrame()) {
      inside = { frame, since: now() };
      entered(frame);
    }
    looking = setTimeout(look, LOOK_MILLISECONDS);
  };
  addEventListener('blur', () => setTimeout(look)); // activeElement is set after the event
}
