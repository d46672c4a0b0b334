// Turns the JSON of an offer into what the page shows. Pure functions.
//
// A notebook file may be hostile, so the sentence and the lines that buttons send are made here: of what the user sees,
// and nothing else.
// sandbox_kernel/notebook/offers/offer.py writes the JSON.
import { safeText } from './receipt-facts.js';

export const OFFERS = 'application/vnd.sandbox-kernel.offers+json';

const MOST_OFFERS = 3;
const SESSION = / --session ([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})$/;

// Returns [{what, before, after, once, lines: {once, session, never, folder}}], with the words before and after what; offers that cannot be shown as they are, are left out.
export function readOffers(data) {
  const offers = data !== null && typeof data === 'object' && Array.isArray(data.offers) ? data.offers : [];
  return offers.slice(0, MOST_OFFERS).map(readOffer).filter((offer) => offer !== null);
}

function readOffer(offer) {
  if (offer === null || typeof offer !== 'object') return null;
  const { what, kind, lines } = offer;
  // What was cut or cleaned would not be what the line allows; the kernel takes a word with a slash for a file.
  if (typeof what !== 'string' || !/^[^-\s]/.test(what) || what === 'once' || safeText(what) !== what) return null;
  if (kind !== 'file' && what.includes('/')) return null;
  const named = SESSION.exec(typeof lines?.session === 'string' ? lines.session : '');
  const word = quoted(kind === 'file' && !what.includes('/') ? `./${what}` : what);
  return {
    what,
    before: kind === 'file' ? 'The program looked for ' : 'The program wanted to reach ',
    after: kind === 'file' ? ', which is beside the notebook.' : '.',
    once: safeText(offer.once_means),
    lines: {
      once: `%sandbox allow once ${word}`,
      session: `%sandbox allow ${word}${named ? ` --session ${named[1]}` : ''}`,
      never: `%sandbox never ${word}`,
      ...(kind === 'file' && !named ? { folder: '%sandbox restart --keep --here' } : {}),
    },
  };
}

// As a shell quotes a word; safeText has taken out line breaks.
function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}
