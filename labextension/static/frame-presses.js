// When the user has pressed, or pressed Tab, in a frame, which the page does not see. The loader of a frame tells it through a port that it
// gets before any code of the output.
const times = new WeakMap();
const tabs = new WeakMap();

// Called each time that the outer document of a frame is ready.
export function hearPresses(iframe) {
  const { port1, port2 } = new MessageChannel();
  port1.addEventListener('message', ({ data }) => {
    const time = performance.now();
    if (data === 'tab' || data === 'tab back') tabs.set(iframe, { time, isBack: data === 'tab back' });
    else times.set(iframe, time);
  });
  port1.start();
  iframe.contentWindow.postMessage({ type: 'presses', sandboxFrame: 1 }, '*', [port2]);
}

// The time of the last press in a frame, by the clock of the page; there may be no frame.
export function lastPress(iframe) {
  return times.get(iframe) ?? -Infinity;
}

// When Tab was pressed in a frame the last time, and whether it was Shift+Tab.
export function lastTab(iframe) {
  return tabs.get(iframe) ?? { time: -Infinity, isBack: false };
}
