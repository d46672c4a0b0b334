// The height of a frame on the page. Growing is prompt, because outputs are drawn in steps. Shrinking brings what stands below
// under the pointer: it waits until the user has left the frame, and longer each time that the frame shrinks again.
import { fittingHeight } from './frame-facts.js';

// After the pointer has left the frame, or a press in it.
const USED_MILLISECONDS = 1000;
const WAIT_MILLISECONDS = 250;
const MEMORY_MILLISECONDS = 60000;

// How many milliseconds a frame still waits before it shrinks. `shrinks` tells how long ago it has shrunk before, `asking` how
// long it has wanted to without a break, `unused` how long the pointer has been elsewhere.
export function shrinkWait({ shrinks, asking, unused }) {
  const recent = shrinks.filter((ago) => ago < MEMORY_MILLISECONDS).length;
  return Math.max(WAIT_MILLISECONDS * 2 ** recent - asking, USED_MILLISECONDS - unused, 0);
}

export class FrameHeight {
  // `lastPress()` is the time of the user's last press in the frame.
  constructor(place, height, lastPress) {
    this.place = place;
    this.lastPress = lastPress;
    this.shrinks = [];
    this.isFitted = false;
    this.left = -Infinity;
    place.addEventListener('pointerenter', () => {
      this.left = Infinity;
    });
    place.addEventListener('pointerleave', () => {
      this.left = performance.now();
      this.settle();
    });
    this.show(height);
  }

  show(height) {
    this.asked = height;
    this.shown = height;
    this.asking = null; // since when it wants to be smaller
    this.place.style.height = `${height}px`;
  }

  // What the frame says, at any time. The first is its fit, which waits for nothing.
  ask(height) {
    this.asked = fittingHeight(height);
    if (this.asked >= this.shown || !this.isFitted) this.show(this.asked);
    this.isFitted = true;
    this.settle();
  }

  settle() {
    clearTimeout(this.timer);
    if (this.asked >= this.shown || this.left === Infinity) return;
    const now = performance.now();
    this.asking ??= now;
    const shrinks = this.shrinks.map((time) => now - time);
    const wait = shrinkWait({ shrinks, asking: now - this.asking, unused: now - Math.max(this.left, this.lastPress()) });
    if (wait > 0) {
      this.timer = setTimeout(() => this.settle(), wait);
      return;
    }
    this.shrinks = [...this.shrinks, now].filter((time) => now - time < MEMORY_MILLISECONDS);
    this.show(this.asked);
  }

  end() {
    clearTimeout(this.timer);
    this.place.style.height = '';
  }
}
