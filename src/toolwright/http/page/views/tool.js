// One tool: its schema as a table, what its author says of it, statistics, and a form to try it.

import { at, post } from "../core/api.js";
import { element, h } from "../core/dom.js";
import { brief, duration, percent, visible } from "../core/format.js";
import { link, to } from "../core/routes.js";
import { resource } from "../core/store.js";
import "../elements/form.js";
import { resolve, typeName } from "../elements/form.js";
import { value } from "../elements/json.js";
import { absent, copy, action, facts, heading, status, trouble } from "../elements/marks.js";
import { definitionOf, effects } from "./tools.js";

element("tw-tool", (self, life) => {
  const name = self.data.tool;
  const source = life.use(resource(at(["tools", name])));
  let given = undefined;
  let invalid = null;
  let session = "page";
  let result = null;
  let busy = false;

  async function run(event) {
    event.preventDefault();
    if (invalid || busy) return;
    busy = true;
    result = null;
    life.update();
    try {
      result = { answer: await post(at(["sessions", session, "batches"]), { calls: [{ name, arguments: given ?? {}, source: "user" }] }) };
    } catch (problem) {
      result = { problem };
    }
    busy = false;
    source.refresh();
    life.update();
  }

  return () => {
    const told = source.data && definitionOf(source.data);
    const stats = source.data?.statistics;
    return [
      heading([h("a", { href: "#/tools" }, "Tools"), h("span", { class: "mono" }, name)], told && action("Copy as JSON", () => copy(told)), h("a", { class: "button", href: link(["calls"], { tool: name }) }, "Its calls")),
      absent(source, "") ?? [
        told.description && h("p", { class: "prose" }, visible(told.description)),
        facts(["effects", effects(told)], ["approval", told.approval], ["time limit", told.timeout == null ? "the policy's" : told.timeout === "none" ? "none" : duration(told.timeout)], ["attempts", told.retry?.attempts], ["after a crash", told.on_crash], ["runs", told.isolation === "process" ? "in a process of its own" : null], ["beside others", told.concurrency?.parallel === false ? "no: one at a time" : "yes"], ["may", (told.capabilities ?? []).join(", ")]),
        stats?.calls > 0 && statistics(stats),
        h("h2", {}, "Arguments"),
        schemaTable(told.input_schema ?? {}),
        h(
          "form",
          { class: "try", onsubmit: run, key: "try" },
          h("h2", {}, "Try it"),
          h("tw-form", { key: "form", schema: told.input_schema ?? {}, changed: (value, problem) => ((given = value), (invalid = problem), life.update()) }),
          h("div", { class: "decide" }, h("button", { type: "submit", class: "main", disabled: busy || Boolean(invalid) }, busy ? "Running…" : "Run"), h("label", {}, "in session ", h("input", { class: "mono", value: session, required: true, "aria-label": "Session to run it in", oninput: (event) => (session = event.target.value) })), !told.hints?.readonly && h("span", { class: "wait" }, "This really runs, and changes something.")),
        ),
        result?.problem && [trouble(result.problem), problems(result.problem)],
        result?.answer && outcome(result.answer, session),
        told.output_schema && value("Schema of its value", told.output_schema, { depth: 2 }),
      ],
    ];
  };
});

function problems(problem) {
  const list = problem.body?.problems ?? [];
  return list.length > 0 && h("ul", {}, list.map((each) => h("li", {}, h("code", {}, each.path), " ", each.message)));
}

function pending(answer, session) {
  const before = answer.waited_for ?? [];
  if (!before.length) return h("p", { class: "notice" }, "It waits for something outside, such as a person. ", h("a", { href: "#/approvals" }, "See the approvals"));
  const calls = before.map((each) => [" ", h("a", { class: "mono", href: to.call(session, each.call_id, each.scope) }, brief(each.call_id, 60))]);
  return h("p", { class: "notice" }, "It starts when an earlier call of the session has what it waits for:", calls, ". ", h("a", { href: "#/approvals" }, "See the approvals"));
}

function outcome(answer, session) {
  const one = (answer.results ?? [])[0] ?? {};
  const told = one;
  const id = told.call_id;
  return h(
    "section",
    { role: "status" },
    h("h2", {}, "Outcome ", status(told.status), " ", id && h("a", { href: to.call(session, id, answer.scope) }, "see the call")),
    told.failure ? h("div", { class: "notice bad" }, h("strong", {}, told.failure.code), " ", brief(told.failure.message, 4000)) : told.status === "pending" ? pending(answer, session) : value("Value", told.value ?? told.text ?? told, { depth: 3 }),
  );
}

function statistics(stats) {
  const rows = [
    ["ran", stats.run_time],
    ["waited", stats.queue_time],
  ];
  return h(
    "section",
    {},
    h("h2", {}, "Statistics of this process"),
    facts(["calls", stats.calls.toLocaleString("en")], ["failed", percent((stats.by_status?.failure ?? 0) / stats.calls)], ...Object.entries(stats.failures ?? {}).map(([word, number]) => [`failed by ${word}`, number]), ["attempts a call", (stats.attempts / stats.calls).toFixed(2)]),
    h("table", { class: "grid small" }, h("thead", {}, h("tr", {}, h("td", {}), ["p50", "p95", "p99"].map((word) => h("th", { scope: "col", class: "num" }, word)))), h("tbody", {}, rows.map(([word, times]) => h("tr", {}, h("th", { scope: "row" }, word), ["p50", "p95", "p99"].map((name) => h("td", { class: "num" }, duration(times[name]))))))),
  );
}

function schemaTable(schema) {
  const told = resolve(schema, schema);
  const rows = [];
  collect(told, schema, "", rows, 0);
  if (rows.length === 0) return h("p", { class: "notice dim" }, "It takes no arguments.");
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "Arguments" },
    h("table", { class: "grid" }, h("thead", {}, h("tr", {}, ["argument", "type", "needed", "default", "description"].map((word) => h("th", { scope: "col" }, word)))), h("tbody", {}, rows.map((row) => h("tr", {}, h("td", { class: "mono" }, row.depth > 0 && h("span", { class: "dim" }, `${"\u00a0\u00a0".repeat(row.depth - 1)}└ `), visible(row.name)), h("td", { class: "dim" }, row.type), h("td", {}, row.needed ? "yes" : ""), h("td", { class: "mono" }, row.fallback), h("td", { class: "wrap" }, visible(row.description)))))),
  );
}

function collect(schema, root, prefix, rows, depth) {
  const needed = new Set(schema.required ?? []);
  for (const [name, inner] of Object.entries(schema.properties ?? {})) {
    if (rows.length > 200) return;
    const told = resolve(inner, root);
    const type = Array.isArray(told.enum) ? told.enum.map((each) => brief(each, 30)).slice(0, 8).join(" | ") : typeName(told);
    rows.push({ name: prefix + name, depth, type, needed: needed.has(name), fallback: told.default === undefined ? "" : brief(told.default, 40), description: String(told.description ?? "").slice(0, 1000) });
    if (depth >= 3) continue;
    if (told.properties) collect(told, root, "", rows, depth + 1);
    else if (told.type === "array" && told.items) collect(resolve(told.items, root), root, "", rows, depth + 1);
  }
}
