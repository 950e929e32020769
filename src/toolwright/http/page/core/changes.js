// Which resources an event makes old. Owns the map from kinds of events to addresses of the API.

import { refresh } from "./store.js";
import { stream } from "./stream.js";

const CALM = 400; // milliseconds over which events are put together

let concerns = new Set();
let timer = 0;

function note(...words) {
  for (const word of words) concerns.add(word);
  timer ||= setTimeout(flush, CALM);
}

function flush() {
  const words = [...concerns];
  concerns = new Set();
  timer = 0;
  refresh((path) => words.some((word) => (word.endsWith("$") ? path === word.slice(0, -1) : path.startsWith(word))));
}

/** Keep the store fresh by the events of the stream. */
export function follow() {
  stream.each((event) => {
    const session = `/v1/sessions/${encodeURIComponent(event.session ?? "")}`;
    const kind = String(event.kind);
    const group = kind.replace(/^agent\./, "").split(".")[0];
    if (group === "call" || group === "batch") {
      if (/progress|status|output|emitted/.test(kind)) return;
      note("/v1/calls", `${session}/calls`, `${session}/batches`);
      if (kind === "call.waiting" || kind === "call.finished" || kind === "call.resumed") note("/v1/approvals", "/v1/decisions");
      if (kind === "batch.finished") note(`/v1/batches/${encodeURIComponent(event.batch)}`);
    } else if (group === "run" || group === "runs") note("/v1/runs", `${session}/runs`);
    else if (group === "approval" || group === "question" || group === "decision" || group === "wait") note("/v1/approvals", "/v1/decisions", "/v1/calls", `${session}/calls`);
    else if (group === "schedule") note("/v1/schedules", `${session}/schedules`);
    else if (group === "turn" || group === "message" || group === "model") note(`${session}/messages`, `${session}/turns`, "/v1/sessions?");
    else if (group === "file") note(`${session}/files`);
    else if (group === "kv") note(`${session}/kv`);
    else if (group === "session") note("/v1/sessions");
    else if (group === "events") note("/v1/"); // some were dropped: read all again
  });

  let away = false;
  stream.watch(() => {
    if (stream.state === "offline") away = true;
    else if (stream.state === "live" && away) {
      away = false;
      refresh(); // what failed to load meanwhile, and what other programs did to the store
    }
  });
}
