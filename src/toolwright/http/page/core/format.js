// Times, numbers and texts as people read them. Owns words and shapes; knows nothing of where the values come from.

/** The shape, the colour class and the word of each status: nobody has to tell colours apart. */
const LOOKS = {
  success: ["✓", "ok"],
  completed: ["✓", "ok"],
  answered: ["✓", "ok"],
  approved: ["✓", "ok"],
  active: ["●", "run"],
  failure: ["✗", "bad"],
  failed: ["✗", "bad"],
  denied: ["✗", "bad"],
  declined: ["✗", "bad"],
  "cut off": ["◐", "bad"],
  abandoned: ["◐", "bad"],
  out_of_budget: ["✗", "bad"],
  missed: ["✗", "bad"],
  cancelled: ["⊘", "dim"],
  skipped: ["⊘", "dim"],
  ended: ["✓", "dim"],
  paused: ["◌", "wait"],
  running: ["●", "run"],
  pending: ["◌", "wait"],
  waiting: ["◌", "wait"],
  expired: ["⊘", "dim"],
  queued: ["○", "dim"],
  unfinished: ["○", "dim"],
  fired: ["✓", "ok"],
  now: ["✓", "ok"],
};

export function look(status) {
  const [shape, tone] = LOOKS[status] ?? ["·", "dim"];
  return { shape, tone, word: String(status ?? "unknown").replaceAll("_", " ") };
}

export const FINISHED = new Set(["success", "failure", "cancelled", "completed", "failed", "abandoned", "answered", "out_of_budget"]);

/** An instant in milliseconds, from RFC 3339 text or seconds since the epoch; null where there is none. */
export function instant(value) {
  if (value == null || value === "") return null;
  const at = typeof value === "number" ? value * 1000 : Date.parse(value) + beyondMilliseconds(value);
  return Number.isFinite(at) ? at : null;
}

// `Date` forgets them, and short calls take less than a millisecond.
function beyondMilliseconds(text) {
  const found = /\.\d{3}(\d+)/.exec(text);
  return found ? Number(`0.${found[1]}`) : 0;
}

/** Seconds that a call waited before it ran, so far. */
export function waited(call) {
  if (call.queue_time) return call.queue_time;
  const queued = instant(call.queued_at);
  return queued === null ? 0 : ((instant(call.started_at) ?? instant(call.finished_at) ?? Date.now()) - queued) / 1000;
}

/** Seconds that a call ran, so far; null if it never did. */
export function ran(call) {
  const started = instant(call.started_at);
  return started === null ? null : call.run_time || ((instant(call.finished_at) ?? Date.now()) - started) / 1000;
}

/** What a call waits for, in words: the key of an approval says nothing to people. */
export function waitWords(waits) {
  return waits.map((each) => each.replace(/^(approval|crash):.*/, "$1").replace(/^(\w+):(?=.)/, "$1 ")).join(", ");
}

/** A duration in seconds: three digits, and a unit. */
export function duration(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds === 0) return "0";
  if (seconds < 0.001) return `${digits(seconds * 1e6)} µs`;
  if (seconds < 0.9995) return `${digits(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${digits(seconds)} s`;
  if (seconds < 3570) return `${Math.floor(seconds / 60)} min ${pad(Math.floor(seconds % 60))} s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${pad(Math.floor((seconds % 3600) / 60))} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

function digits(value) {
  return value >= 99.5 ? value.toFixed(0) : value >= 9.95 ? value.toFixed(1) : value.toFixed(2);
}

function pad(value) {
  return String(value).padStart(2, "0");
}

/** How long ago an instant was, or how far away it is. */
export function relative(at, now = Date.now()) {
  const seconds = (now - at) / 1000;
  const [far, ago] = seconds < 0 ? [-seconds, false] : [seconds, true];
  let words;
  if (far < 1) return "now";
  else if (far < 60) words = `${Math.floor(far)} s`;
  else if (far < 3600) words = `${Math.floor(far / 60)} min`;
  else if (far < 86400) words = `${Math.floor(far / 3600)} h`;
  else if (far < 86400 * 30) words = `${Math.floor(far / 86400)} d`;
  else return new Date(at).toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" });
  return ago ? `${words} ago` : `in ${words}`;
}

/** The instant itself, in the reader's zone, to the millisecond. */
export function exact(at) {
  const date = new Date(at);
  return `${date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" })}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/** An instant in a zone by name; in the reader's zone if that is not known. */
export function inZone(at, zone) {
  const options = { weekday: "short", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false };
  try {
    return new Date(at).toLocaleString(undefined, { ...options, timeZone: zone });
  } catch {
    return new Date(at).toLocaleString(undefined, options);
  }
}

export function bytes(count) {
  if (count == null) return "–";
  if (count < 1024) return `${count} B`;
  const unit = Math.min(4, Math.floor(Math.log2(count) / 10));
  return `${digits(count / 1024 ** unit)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

export function count(number, noun, plural = `${noun}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? noun : plural}`;
}

export function percent(share) {
  return share === 0 ? "0 %" : share < 0.01 ? "< 1 %" : `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}

/** The first characters of a text on one line, with everything invisible made visible. */
export function line(text, most = 200) {
  return visible(String(text).slice(0, most * 2).replace(/\s+/g, " ")).slice(0, most);
}

const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\u{e0000}-\u{e007f}]/gu;

/** A text in which control characters, bidi overrides and zero-width characters are seen as what they are. */
export function visible(text) {
  return text.replace(INVISIBLE, (character) => {
    const code = character.codePointAt(0);
    if (code === 0x1b) return "⟨ESC⟩";
    return `⟨${code.toString(16).toUpperCase().padStart(code < 0x100 ? 2 : 4, "0")}⟩`;
  });
}

/** A value as one short line. */
export function brief(value, most = 120) {
  if (value === undefined) return "";
  const text = typeof value === "string" ? value : shallow(value, most);
  const short = line(text, most);
  return text.length > short.length ? `${short}…` : short;
}

// JSON.stringify of a huge value costs as much as the value is long; a line needs only its beginning.
function shallow(value, most, depth = 0) {
  if (value === null || typeof value !== "object") return typeof value === "string" ? JSON.stringify(value.slice(0, most)) : String(value);
  const list = Array.isArray(value);
  if (depth > 3) return list ? "[…]" : "{…}";
  let text = list ? "[" : "{";
  const entries = list ? value : Object.keys(value);
  for (let index = 0; index < entries.length; index++) {
    if (index) text += ", ";
    if (text.length > most) return `${text}…`;
    text += list ? shallow(value[index], most, depth + 1) : `${entries[index]}: ${shallow(value[entries[index]], most, depth + 1)}`;
  }
  return text + (list ? "]" : "}");
}

/** The end of an id, by which people tell ids apart; short ids stay whole. */
export function shortId(id) {
  const text = String(id ?? "");
  return text.length > 24 ? `…${text.slice(-8)}` : text;
}
