// Background runs: what they do, how far they are, and which run started which.

import { at } from "../core/api.js";
import { element, h } from "../core/dom.js";
import { brief, duration, instant } from "../core/format.js";
import { link, route, to } from "../core/routes.js";
import { resource } from "../core/store.js";
import { absent, heading, more, ref, status, when } from "../elements/marks.js";
import { progress } from "../elements/progress.js";

const STATUSES = ["queued", "running", "waiting", "completed", "failed", "cancelled", "abandoned"];

element("tw-runs", (self, life) => {
  const runs = life.use(resource(at(["runs"], { limit: 200 })));
  life.every(1000, life.update);
  return ({ query = {} }) => {
    const items = (runs.data?.items ?? []).filter((run) => (!query.status || run.status === query.status) && (!query.words || `${run.title} ${run.tool} ${run.run_id} ${run.session}`.toLowerCase().includes(query.words.toLowerCase())));
    const filter = (name, value) => route.go(link(["runs"], { ...query, [name]: value }), { quiet: true });
    return [
      heading(["Runs"]),
      h(
        "div",
        { class: "filters" },
        h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter by title, tool, id or session", value: query.words ?? "", oninput: (event) => filter("words", event.target.value) }),
        h("select", { "aria-label": "status", onchange: (event) => filter("status", event.target.value) }, ["", ...STATUSES].map((each) => h("option", { value: each, selected: each === (query.status ?? "") }, each || "any status"))),
      ),
      absent(runs, ["No runs yet: ", h("code", {}, "toolwright spawn --app … --db … tool name=value")]) ?? [runTable(items), items.length === 0 && h("p", { class: "notice dim" }, "No run matches."), more(runs)],
    ];
  };
});

/** Runs as a table; those that a run started are below it. */
export function runTable(runs) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs" },
    h(
      "table",
      { class: "grid" },
      h("thead", {}, h("tr", {}, ["status", "title", "tool", "session", "progress"].map((word) => h("th", { scope: "col" }, word)), ["attempts", "took", "when"].map((word) => h("th", { scope: "col", class: "num" }, word)))),
      h("tbody", {}, tree(runs).map(([run, depth]) => row(run, depth))),
    ),
  );
}

function row(run, depth) {
  const started = instant(run.started_at);
  return h(
    "tr",
    { key: run.run_id },
    h("td", {}, status(run.status)),
    h("td", { class: "wide" }, depth > 0 && h("span", { class: "dim mono" }, `${"\u00a0\u00a0".repeat(depth - 1)}└ `), h("a", { href: to.run(run.run_id) }, brief(run.title || run.run_id, 80))),
    h("td", { class: "mono" }, h("a", { class: "plain", href: to.tool(run.tool) }, run.tool)),
    h("td", {}, ref(to.session(run.session), run.session)),
    h("td", {}, progress(run.progress) ?? h("span", { class: "dim" }, brief(run.status_text, 60))),
    h("td", { class: "num" }, run.attempts > 1 ? h("span", { class: "wait", title: "taken over, or tried again" }, run.attempts) : run.attempts),
    h("td", { class: "num" }, started === null ? "" : duration(((instant(run.ended_at) ?? Date.now()) - started) / 1000)),
    h("td", { class: "num" }, when(run.ended_at ?? run.started_at ?? run.created_at)),
  );
}

function tree(runs) {
  const known = new Set(runs.map((run) => run.run_id));
  const below = new Map();
  for (const run of runs) {
    const parent = known.has(run.parent) ? run.parent : null;
    below.set(parent, [...(below.get(parent) ?? []), run]);
  }
  const rows = [];
  const walk = (parent, depth) => {
    for (const run of below.get(parent) ?? []) {
      rows.push([run, depth]);
      if (depth < 20) walk(run.run_id, depth + 1);
    }
  };
  walk(null, 0);
  return rows;
}
