// The last minutes in numbers, from the events. Owns counting them by the second, bounded in time and in memory.

import { instant } from "./format.js";
import { Source } from "./store.js";
import { stream } from "./stream.js";

export const SECONDS = 300;
const MOST = 5_000; // calls that are followed at once; beyond it the oldest are forgotten

class Activity extends Source {
  ended = new Uint32Array(SECONDS);
  failed = new Uint32Array(SECONDS);
  busy = new Uint32Array(SECONDS);
  /** The calls that run, by session and id: their latest progress and status text, too. */
  running = new Map();
  #second = Math.floor(Date.now() / 1000);
  #seen = new Set();

  start() {
    stream.each((event) => this.#take(event));
    setInterval(() => this.#advance(), 1000);
  }

  /** Count calls that ended before the page was opened. */
  seed(calls) {
    for (const call of calls) {
      const at = instant(call.finished_at);
      const key = `${call.session}\n${call.scope ?? ""}\n${call.call_id}`;
      if (at === null || this.#seen.has(key)) continue;
      this.#seen.add(key);
      this.#count(at, call.status === "failure");
    }
    if (this.#seen.size > MOST) this.#seen.clear();
    this.tell();
  }

  /** The counts in order of time, the present second last. */
  series(of) {
    const start = (this.#second + 1) % SECONDS;
    return [...of.subarray(start), ...of.subarray(0, start)];
  }

  get perSecond() {
    const ended = this.series(this.ended);
    return ended.slice(-11, -1).reduce((sum, each) => sum + each, 0) / 10;
  }

  #take(event) {
    const kind = String(event.kind).replace(/^agent\./, "");
    if (!kind.startsWith("call.")) return;
    const key = `${event.session}\n${event.scope ?? ""}\n${event.call_id}`;
    if (kind === "call.finished") {
      this.running.delete(key);
      this.#seen.add(key);
      if (this.#seen.size > MOST) this.#seen.clear();
      this.#count(instant(event.at) ?? Date.now(), event.status === "failure");
    } else {
      const known = this.running.get(key) ?? { session: event.session, scope: event.scope, call_id: event.call_id, tool: event.tool, batch: event.batch };
      if (kind === "call.started") Object.assign(known, { started_at: event.at, source: event.source, arguments: event.arguments, waits: null });
      else if (kind === "call.waiting") known.waits = event.what;
      else if (kind === "call.progress") known.progress = { current: event.current, total: event.total, label: event.label, unit: event.unit };
      else if (kind === "call.status") known.text = event.text;
      else if (kind !== "call.output") return;
      this.running.set(key, known);
      if (this.running.size > MOST) this.running.delete(this.running.keys().next().value);
    }
    this.tell();
  }

  #count(at, failed) {
    const second = Math.floor(at / 1000);
    this.#advance();
    if (second <= this.#second - SECONDS || second > this.#second) return;
    this.ended[second % SECONDS] += 1;
    if (failed) this.failed[second % SECONDS] += 1;
  }

  #advance() {
    const second = Math.floor(Date.now() / 1000);
    const behind = Math.min(SECONDS, second - this.#second);
    if (behind <= 0) return;
    for (let step = 0; step < behind; step++) {
      const slot = (second - step) % SECONDS;
      this.ended[slot] = this.failed[slot] = this.busy[slot] = 0;
    }
    this.#second = second;
    this.busy[second % SECONDS] = this.running.size;
    this.tell();
  }
}

export const activity = new Activity();
