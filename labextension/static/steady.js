// Controls beside outputs: an output can grow, shrink or ask for something, and so bring a control under the pointer of a
// user who is about to click in the output. A press counts if the control has been seen at one place for a while before it.
// Until then it is greyed (aria-disabled).
const STEADY_MILLISECONDS = 700;
// The looks are not evenly spaced: nobody can move a control away and back between them.
const LOOK_MILLISECONDS = { least: 30, more: 60 };

// Where a control stands, and since when. `place` is null while it is not seen.
export function stands(before, place, now) {
  return before?.place === place ? before : { place, since: now };
}

export function isSteady({ place, since }, now) {
  return place !== null && now - since >= STEADY_MILLISECONDS;
}

const states = new WeakMap();
const inView = new Set();
let observer = null;
let timer = null;

// The place of a control in the window; null if something lies over its middle or its middle is outside of the window.
function placeOf(node) {
  const { x, y, width, height } = node.getBoundingClientRect();
  const seen = document.elementFromPoint(x + width / 2, y + height / 2);
  return seen && node.contains(seen) ? [x, y, width, height].map(Math.round).join() : null;
}

function look(node, now = performance.now()) {
  const state = stands(states.get(node), placeOf(node), now);
  states.set(node, state);
  return show(node, isSteady(state, now));
}

function show(node, steady) {
  if (steady) node.removeAttribute('aria-disabled');
  else node.setAttribute('aria-disabled', 'true');
  return steady;
}

function lookAtAll() {
  for (const node of inView) look(node);
  timer = inView.size ? setTimeout(lookAtAll, LOOK_MILLISECONDS.least + Math.random() * LOOK_MILLISECONDS.more) : null;
}

function seen(entries) {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) inView.add(target);
    else inView.delete(target);
    look(target);
  }
  if (timer === null) lookAtAll();
}

function wait(node) {
  states.delete(node);
  look(node);
}

// Makes a new control ignore presses while it is not steady.
export function pressWhenSteady(node) {
  let pressed = null; // what the pointer's press on it found; null for a press by a key
  const released = () => setTimeout(() => { pressed = null; }); // after the click
  node.addEventListener('pointerdown', () => {
    pressed = look(node);
    if (!pressed) wait(node); // someone who clicks fast means something else
    // Not when the control loses the focus: JupyterLab takes it for a cell that becomes the active one, before the click.
    for (const name of ['pointerup', 'pointercancel']) addEventListener(name, released, { once: true, capture: true });
  });
  // An ignored press does not move the focus: the next Enter would press the control.
  node.addEventListener('mousedown', (event) => {
    if (pressed === false) event.preventDefault();
  });
  // Tab can come here by surprise too: from a field of an output, for example.
  node.addEventListener('focus', () => {
    if (pressed !== true) wait(node);
  });
  node.addEventListener('click', (event) => {
    const counts = event.detail > 0 ? pressed === true : look(node);
    pressed = null;
    if (counts) return;
    event.stopImmediatePropagation();
    wait(node);
  });
  show(node, false);
  observer ??= new IntersectionObserver(seen);
  observer.observe(node);
}
