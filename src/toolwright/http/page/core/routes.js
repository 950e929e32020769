// The address of each view. Owns the way from the fragment of the URL to a view, and back.
//
// A view is in the fragment (`#/sessions/s1`), so that the page works under any path it is mounted at, and a link
// survives a login. Each part is escaped, because ids are chosen by others.

import { Source } from "./store.js";

/** The views: their words in the address, the element that shows them, and the file that defines it. */
const VIEWS = {
  now: ["tw-now", () => import("../views/now.js")],
  sessions: ["tw-sessions", () => import("../views/sessions.js")],
  session: ["tw-session", () => import("../views/session.js")],
  batch: ["tw-batch", () => import("../views/batch.js")],
  call: ["tw-call-view", () => import("../views/call.js")],
  calls: ["tw-calls", () => import("../views/calls.js")],
  runs: ["tw-runs", () => import("../views/runs.js")],
  run: ["tw-run", () => import("../views/run.js")],
  schedules: ["tw-schedules", () => import("../views/schedules.js")],
  schedule: ["tw-schedule", () => import("../views/schedules.js")],
  approvals: ["tw-approvals", () => import("../views/approvals.js")],
  tools: ["tw-tools", () => import("../views/tools.js")],
  tool: ["tw-tool", () => import("../views/tool.js")],
};

const PATTERNS = [
  ["", "now"],
  ["now", "now"],
  ["calls", "calls"],
  ["sessions", "sessions"],
  ["sessions/:session/calls/:call", "call"],
  ["sessions/:session", "session"],
  ["sessions/:session/:tab", "session"],
  ["batches/:batch", "batch"],
  ["batches/:batch/:call", "batch"],
  ["runs", "runs"],
  ["runs/:run", "run"],
  ["schedules", "schedules"],
  ["schedules/:schedule", "schedule"],
  ["approvals", "approvals"],
  ["approvals/:request", "approvals"],
  ["tools", "tools"],
  ["tools/:tool", "tool"],
].map(([pattern, view]) => [pattern ? pattern.split("/") : [], view]);

/** The address of a view: parts of the path, and parameters. */
export function link(parts, query = {}) {
  const words = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const search = words.length ? `?${new URLSearchParams(words)}` : "";
  return `#/${parts.map((part) => encodeURIComponent(part)).join("/")}${search}`;
}

export const to = {
  session: (session, tab) => link(["sessions", session, ...(tab ? [tab] : [])]),
  call: (session, call, scope) => link(["sessions", session, "calls", call], { scope }),
  batch: (batch, call, session) => link(["batches", batch, ...(call ? [call] : [])], { session }),
  run: (run) => link(["runs", run]),
  schedule: (schedule) => link(["schedules", schedule]),
  approval: (key) => link(["approvals", key]),
  tool: (tool) => link(["tools", tool]),
};

function read(fragment) {
  const [path, search = ""] = fragment.replace(/^#?\/?/, "").split("?", 2);
  const given = path.split("/").filter(Boolean).map(unescaped);
  for (const [pattern, view] of PATTERNS) {
    if (pattern.length !== given.length) continue;
    const params = {};
    const fits = pattern.every((word, index) => {
      if (word.startsWith(":")) params[word.slice(1)] = given[index];
      return word.startsWith(":") || word === given[index];
    });
    if (fits) return { view, params, query: Object.fromEntries(new URLSearchParams(search)), path: given };
  }
  return { view: null, params: {}, query: {}, path: given };
}

function unescaped(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

class Route extends Source {
  current = read(location.hash);
  element = null;
  problem = null;

  start() {
    addEventListener("hashchange", () => this.#show());
    return this.#show();
  }

  /** Go to an address; `quiet` replaces the present one in the history, as for a filter that is typed. */
  go(address, { quiet = false } = {}) {
    if (quiet) {
      history.replaceState(null, "", address);
      this.#show();
    } else location.hash = address;
  }

  async #show() {
    const wanted = read(location.hash);
    const found = VIEWS[wanted.view];
    this.problem = null;
    try {
      if (found) await found[1]();
    } catch {
      this.problem = new Error("This part of the page could not be loaded; the service may be restarting. Reload to try again.");
    }
    if (location.hash && read(location.hash).view !== wanted.view) return; // somebody went on meanwhile
    this.current = wanted;
    this.element = found?.[0] ?? null;
    this.tell();
  }
}

export const route = new Route();
