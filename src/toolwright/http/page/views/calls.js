// All calls, the newest first, by session, tool and status.

import { at } from "../core/api.js";
import { element, h } from "../core/dom.js";
import { route, link } from "../core/routes.js";
import { resource } from "../core/store.js";
import { absent, heading, more } from "../elements/marks.js";
import { callTable } from "./now.js";

const STATUSES = ["success", "failure", "cancelled", "running", "waiting", "cut off"];

element("tw-calls", (self, life) => {
  let path = null;
  let calls = null;
  let stop = () => {};
  life.ended(() => stop());

  function use({ session, tool, status }) {
    const wanted = at(["calls"], { session, tool, status, limit: 100 });
    if (wanted === path) return;
    path = wanted;
    stop();
    calls = resource(path);
    stop = calls.watch(() => life.update());
  }

  return ({ query = {} }) => {
    use(query);
    const filter = (name, value) => route.go(link(["calls"], { ...query, [name]: value }), { quiet: true });
    const field = (name, label) => h("input", { type: "search", placeholder: label, "aria-label": label, class: "mono", value: query[name] ?? "", onchange: (event) => filter(name, event.target.value.trim()) });
    return [
      heading(["Calls"]),
      h(
        "div",
        { class: "filters" },
        field("session", "session"),
        field("tool", "tool"),
        h("select", { "aria-label": "status", onchange: (event) => filter("status", event.target.value) }, ["", ...STATUSES].map((each) => h("option", { value: each, selected: each === (query.status ?? "") }, each || "any status"))),
      ),
      absent(calls, Object.keys(query).length ? "No call matches." : ["No calls yet: ", h("code", {}, "toolwright call --app … --db … tool name=value")]) ?? [callTable(calls.data.items), more(calls)],
    ];
  };
});
