// The events of the service, live. Owns the one open stream, its resumption, and telling that it is away.
//
// It is read by `fetch` and not by EventSource: that one hides why a connection failed, and cannot continue after the
// last event once it was closed. The stream goes on after `Last-Event-ID`; the service repeats what was missed.

import { BASE, Problem } from "./api.js";
import { Source } from "./store.js";

const SILENCE = 40_000; // no event and no heartbeat for so long: the connection is dead
const SLOWEST = 8_000;

class Stream extends Source {
  state = "connecting"; // "live", "offline", "forbidden"
  heard = Date.now();
  problem = null;
  lastId = null;
  received = 0;
  #handlers = new Set();
  #failures = 0;
  #stop = null;
  #wake = null;

  /** Call `done(event)` for each event, in order. */
  each(done) {
    this.#handlers.add(done);
    return () => this.#handlers.delete(done);
  }

  async run() {
    addEventListener("online", () => this.#wake?.());
    for (;;) {
      try {
        await this.#read();
        this.#failures = 0;
      } catch (error) {
        this.problem = error;
        this.#failures += 1;
        if (error.status === 401 || error.status === 403) {
          this.#become("forbidden");
          await new Promise((resolve) => (this.#wake = resolve));
          continue;
        }
      }
      this.#become("offline");
      const pause = Math.min(SLOWEST, 400 * 2 ** Math.min(this.#failures, 6)) * (0.7 + 0.3 * Math.random());
      await new Promise((resolve) => {
        this.#wake = resolve;
        setTimeout(resolve, this.#failures ? pause : 150);
      });
    }
  }

  /** Connect now, such as after a login. */
  retry() {
    this.#failures = 0;
    this.#wake?.();
  }

  #become(state) {
    if (this.state === state) return;
    this.state = state;
    this.tell();
  }

  async #read() {
    this.#stop = new AbortController();
    let silence = 0;
    const alive = () => {
      this.heard = Date.now();
      clearTimeout(silence);
      silence = setTimeout(() => this.#stop.abort(), SILENCE);
    };
    alive();
    try {
      const headers = { Accept: "text/event-stream" };
      if (this.lastId !== null) headers["Last-Event-ID"] = this.lastId;
      const answer = await fetch(`${BASE}/v1/events`, { headers, signal: this.#stop.signal, cache: "no-store" });
      if (!answer.ok) throw new Problem(answer.status, { title: answer.statusText });
      this.#failures = 0;
      this.problem = null;
      this.#become("live");
      for await (const message of messages(answer.body, alive)) this.#take(message);
    } catch (error) {
      if (error instanceof Problem) throw error;
      throw new Problem(0, { title: "The stream was cut" });
    } finally {
      clearTimeout(silence);
    }
  }

  #take({ id, event, data }) {
    if (id) this.lastId = id;
    if (!data) return;
    let said;
    try {
      said = JSON.parse(data);
    } catch {
      return; // not ours
    }
    said.kind ??= said.type ?? event;
    this.received += 1;
    for (const handler of this.#handlers) handler(said);
  }
}

/** The messages of a stream of server-sent events. */
export async function* messages(body, alive = () => {}) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      alive();
      rest += value;
      const parts = rest.split(/\r?\n\r?\n/);
      rest = parts.pop();
      for (const part of parts) yield message(part);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function message(text) {
  const said = { id: null, event: "message", data: "" };
  const lines = [];
  for (const each of text.split(/\r?\n/)) {
    const split = each.indexOf(":");
    const name = split < 0 ? each : each.slice(0, split);
    const value = split < 0 ? "" : each.slice(split + 1).replace(/^ /, "");
    if (name === "id") said.id = value;
    else if (name === "event") said.event = value;
    else if (name === "data") lines.push(value);
  }
  said.data = lines.join("\n");
  return said;
}

export const stream = new Stream();
