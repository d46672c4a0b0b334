// Keeps the keyboard for the user: code in a frame may call focus() at any time and would get what the user types
// elsewhere. Focus that arrives in a frame while the pointer is not on it and Tab was not pressed goes back; the third
// time the frame is removed.
const TAB_MILLISECONDS = 200;
const MOST_THEFTS = 3;

export function guardFocus(isOurs, remove) {
  let last = null;
  let tab = -Infinity;
  const thefts = new WeakMap();
  addEventListener('focusin', ({ target }) => {
    if (target.tagName !== 'IFRAME') last = target;
  });
  addEventListener(
    'keydown',
    ({ key }) => {
      if (key === 'Tab') tab = performance.now();
    },
    true,
  );
  const check = () => {
    const frame = document.activeElement;
    if (frame?.tagName !== 'IFRAME' || !isOurs(frame)) return;
    if (frame.matches(':hover') || performance.now() - tab < TAB_MILLISECONDS) return;
    const count = (thefts.get(frame) ?? 0) + 1;
    thefts.set(frame, count);
    frame.blur();
    window.focus();
    last?.focus();
    if (count >= MOST_THEFTS) remove(frame);
  };
  addEventListener('blur', () => setTimeout(check)); // activeElement is set after the event
}
