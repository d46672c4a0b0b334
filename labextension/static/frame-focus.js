// Keeps the keyboard for the user: code in a frame may call focus() at any time and would get what the user types
// elsewhere. Focus that a frame takes without a click in it goes back; after the fifth time in a short while the frame
// is removed.
const TAB_MILLISECONDS = 200;
const ACTIVATION_MILLISECONDS = 6000;
const SHORT_WHILE_MILLISECONDS = 10000;
const MOST_THEFTS = 5;

// Whether the user has gone into the frame. A click in a frame activates the page too, without an event in the page; so
// an activation is the frame's if the page has had no event of its own that explains it, or if the pointer is there.
export function wasAsked({ sinceTab, sinceOwnEvent, isActive, isPointerThere }) {
  if (sinceTab < TAB_MILLISECONDS) return true;
  return isActive && (isPointerThere || sinceOwnEvent > ACTIVATION_MILLISECONDS);
}

export function guardFocus(isOurs, remove) {
  let last = null;
  let over = null;
  let tab = -Infinity;
  let own = -Infinity;
  const thefts = new WeakMap();
  const now = () => performance.now();
  addEventListener('focusin', ({ target }) => {
    if (target.tagName !== 'IFRAME') last = target;
  });
  const follow = (name, use) => addEventListener(name, use, { capture: true, passive: true });
  follow('pointerover', ({ target }) => {
    over = target;
  });
  for (const name of ['keydown', 'pointerdown', 'pointerup', 'touchend']) {
    follow(name, ({ key }) => {
      own = now();
      if (key === 'Tab') tab = own;
    });
  }
  const check = () => {
    const frame = document.activeElement;
    if (frame?.tagName !== 'IFRAME' || !isOurs(frame)) return;
    const isActive = navigator.userActivation?.isActive ?? true;
    const isPointerThere = over === frame || frame.parentElement === over;
    if (wasAsked({ sinceTab: now() - tab, sinceOwnEvent: now() - own, isActive, isPointerThere })) return;
    const recent = [...(thefts.get(frame) ?? []), now()].filter((time) => now() - time < SHORT_WHILE_MILLISECONDS);
    thefts.set(frame, recent);
    frame.blur();
    window.focus();
    last?.focus();
    if (recent.length >= MOST_THEFTS) remove(frame);
  };
  addEventListener('blur', () => setTimeout(check)); // activeElement is set after the event
}
