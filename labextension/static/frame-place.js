// Where a frame stands: in a shadow tree. The windows of frames in shadow trees are in no list (`top.frames`), so code in one
// frame does not get at the window of another: it could focus it, and the other would seem to have taken the keyboard.
import { element } from './dom.js';

export function framePlace(options) {
  const place = element('div', options);
  place.attachShadow({ mode: 'open' });
  return place;
}

// A frame without a document. Its style is that of its `part`.
export function emptyFrame() {
  return element('iframe', { attributes: { sandbox: 'allow-scripts', title: 'output of a sandbox', part: 'frame' } });
}

// The element of the page that a frame stands in.
export function placeOf(frame) {
  return frame.getRootNode().host ?? frame;
}
