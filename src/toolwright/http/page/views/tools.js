// All tools, with how often they are called, how often they fail, and how long they take.

import { at } from "../core/api.js";
import { element, h } from "../core/dom.js";
import { brief, duration, percent } from "../core/format.js";
import { to } from "../core/routes.js";
import { resource } from "../core/store.js";
import { absent, heading, more } from "../elements/marks.js";

element("tw-tools", (self, life) => {
  const tools = life.use(resource(at(["tools"], { limit: 500 })));
  let words = "";
  return () => {
    const wanted = words.trim().toLowerCase();
    const items = (tools.data?.items ?? []).filter((each) => `${each.name} ${definitionOf(each).description ?? ""}`.toLowerCase().includes(wanted));
    return [
      heading(["Tools"], h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter by name or description", value: words, oninput: (event) => ((words = event.target.value), life.update()) })),
      absent(tools, "This app has no tools.") ?? [
        h(
          "div",
          { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tools" },
          h(
            "table",
            { class: "grid" },
            h("thead", {}, h("tr", {}, ["tool", "description", "effects"].map((word) => h("th", { scope: "col" }, word)), ["calls", "failed", "p50", "p95", "p99"].map((word) => h("th", { scope: "col", class: "num" }, word)))),
            h("tbody", {}, items.map(row)),
          ),
        ),
        more(tools),
      ],
    ];
  };
});

export const definitionOf = (tool) => tool.definition ?? tool;

function row(tool) {
  const told = definitionOf(tool);
  const stats = tool.statistics;
  const times = stats?.calls ? stats.run_time : null;
  return h(
    "tr",
    { key: tool.name },
    h("td", {}, h("a", { class: "ref", href: to.tool(tool.name) }, tool.name)),
    h("td", { class: "wide" }, brief(told.description, 160)),
    h("td", {}, effects(told)),
    h("td", { class: "num" }, stats?.calls ? stats.calls.toLocaleString("en") : ""),
    h("td", { class: `num${stats?.by_status?.failure ? " bad" : ""}` }, stats?.calls ? percent((stats.by_status?.failure ?? 0) / stats.calls) : ""),
    ["p50", "p95", "p99"].map((name) => h("td", { class: "num" }, times ? duration(times[name]) : "")),
  );
}

export function effects(told) {
  const hints = told.hints ?? {};
  const words = [hints.readonly ? "reads" : hints.destructive ? "destructive" : "changes", hints.idempotent && !hints.readonly && "idempotent", hints.open_world && "outside", told.approval === "required" && "needs approval", told.kind !== "function" && told.kind].filter(Boolean);
  return h("span", { class: hints.destructive ? "wait" : "dim" }, words.join(", "));
}
