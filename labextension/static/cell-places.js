// Which cell of a notebook a request came from. Pure: cells are `{ id, source }`, in their order.
// A page makes up ids of its own for the cells of an old notebook (nbformat before 4.5). There it is the only cell with
// the same source, or the one at the place that an earlier page of this browser has noted down.
const MOST_PLACES = 200;

export function findCell(cells, { cell, code }, places) {
  const named = cells.find(({ id }) => id === cell);
  if (named) return named;
  const same = cells.filter(({ source }) => source === code);
  if (same.length < 2) return same[0];
  const place = places.find(([id, , count]) => id === cell && count === same.length);
  return place && same[place[1]];
}

// Pairs of a cell and its newest run. `shown` has all runs that the kernel keeps, in the order in which they began.
export function newestRuns(cells, shown, places) {
  const newest = new Map();
  for (const run of shown) {
    const cell = findCell(cells, run, places);
    if (cell) newest.set(cell, run);
  }
  return [...newest];
}

// The noted places and that of a cell which is about to run; only cells that share their source with others need one.
export function withPlace(cells, id, places) {
  const source = cells.find((cell) => cell.id === id)?.source;
  const same = cells.filter((cell) => cell.source === source);
  if (same.length < 2) return places;
  const place = [id, same.findIndex((cell) => cell.id === id), same.length];
  return [place, ...places.filter(([other]) => other !== id)].slice(0, MOST_PLACES);
}
