// Declares the globals of the JavaScript engine (javascript_boot.js) for the type checker.
declare namespace sandbox {
  type Say = (...values: unknown[]) => void;
  interface Console {
    log: Say; info: Say; debug: Say; warn: Say; error: Say; trace: Say; dir: Say; group: Say; groupEnd: Say;
    table(value: unknown): void; assert(condition?: unknown, ...values: unknown[]): void;
    time(label?: string): void; timeEnd(label?: string): void; count(label?: string): void;
  }
  interface Stream { write(text: string | Uint8Array): boolean }
  interface Process {
    argv: string[]; env: Record<string, string | undefined>; exitCode: number | undefined; platform: string; pid: number;
    version: string; versions: Record<string, string>; stdin: any; stdout: Stream; stderr: Stream;
    cwd(): string; exit(code?: number): never; uptime(): number; nextTick(call: (...values: any[]) => void, ...values: any[]): void;
    hrtime: { (): [number, number]; bigint(): bigint }; memoryUsage(): Record<string, number>;
    on(event: string, call: (...values: any[]) => void): Process;
  }
}
declare var console: sandbox.Console;
declare var process: sandbox.Process;
declare var performance: { now(): number; timeOrigin: number };
declare function setTimeout(call: (...values: any[]) => void, ms?: number, ...values: any[]): any;
declare function setInterval(call: (...values: any[]) => void, ms?: number, ...values: any[]): any;
declare function setImmediate(call: (...values: any[]) => void, ...values: any[]): any;
declare function clearTimeout(timer: any): void;
declare function clearInterval(timer: any): void;
declare function clearImmediate(timer: any): void;
declare function queueMicrotask(call: () => void): void;
declare function structuredClone<T>(value: T): T;
declare function prompt(question?: string): string | null;
declare function require(name: string): any;
declare function btoa(text: string): string;
declare function atob(text: string): string;
declare class TextEncoder { encode(text?: string): Uint8Array }
declare class TextDecoder { constructor(label?: string, options?: object); decode(data?: Uint8Array | ArrayBuffer): string }
declare module "fs";
declare module "node:fs";
declare module "fs/promises";
declare module "node:fs/promises";
declare module "path";
declare module "node:path";
declare module "util";
declare module "node:util";
declare module "assert";
declare module "node:assert";
