// One sample of each syntax: a waiting Node.js transforms it once, so that its transpiler is loaded before the cell.
interface Shape<T> {
  value?: T;
}
type Name = keyof Shape<number> | string;
enum Color {
  Red = 1,
  Green,
}
namespace Inner {
  export const depth: number = 3;
}
class Point<T> extends Object implements Shape<T> {
  static count = 1;
  value?: T;
  constructor(
    public x: number,
    private y = 2,
  ) {
    super();
  }
  get sum(): number {
    return this.x + this.y;
  }
  async each(...items: T[]): Promise<void> {
    for (const item of items) await item;
  }
}
function known<T extends object>(thing: T, name?: string): thing is T {
  return !!thing && `${name ?? Color.Green}`.length > 0;
}
const ask = async (name: Name) => {
  try {
    return known({ ...new Point(1), name }) as unknown;
  } catch (error) {
    throw error;
  }
};
let [first, { second } = { second: 1 }] = [Inner.depth!];
if (first > 1) {
  switch (second) {
    case 1:
      first++;
      break;
    default:
  }
}
const nothing = /a/.test('') ? null : <any>undefined;
