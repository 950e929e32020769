// The search in the head. Owns finding sessions, calls, runs, schedules and tools by parts of their names and ids.

import { at } from "../core/api.js";
import { element, h } from "../core/dom.js";
import { brief } from "../core/format.js";
import { route, to } from "../core/routes.js";
import { resource } from "../core/store.js";

const MOST = 12;

const KINDS = [
  ["session", at(["sessions"], { limit: 500 }), (each) => [each.id, each.title], (each) => to.session(each.id)],
  ["tool", at(["tools"]), (each) => [each.name, each.definition?.description], (each) => to.tool(each.name)],
  ["run", at(["runs"], { limit: 500 }), (each) => [each.run_id ?? each.id, each.title, each.tool], (each) => to.run(each.run_id ?? each.id)],
  ["call", at(["calls"], { limit: 500 }), (each) => [each.call_id, each.tool, each.session], (each) => to.call(each.session, each.call_id, each.scope)],
];

element("tw-search", (self, life) => {
  let words = "";
  let chosen = 0;
  let found = [];
  let open = false;
  let stops = [];
  const look = () => {
    found = open && words.trim() ? matches(words.trim().toLowerCase()) : [];
    chosen = Math.min(chosen, Math.max(0, found.length - 1));
    life.update();
  };
  const start = () => {
    open = true;
    // Lists are read when somebody searches, and not before.
    if (!stops.length) stops = KINDS.map(([, path]) => resource(path).watch(look));
    look();
  };
  const end = () => {
    open = false;
    for (const stop of stops.splice(0)) stop();
    look();
  };
  life.ended(end);
  life.on(self, "focusout", (event) => self.contains(event.relatedTarget) || end());

  function go(index) {
    const target = found[index];
    if (!target) return;
    words = "";
    document.getElementById("search").blur();
    end();
    route.go(target.href);
  }

  return () => [
    h("input", {
      id: "search",
      type: "search",
      placeholder: "Search sessions, calls, runs  /",
      "aria-label": "Search sessions, calls, runs and tools",
      role: "combobox",
      "aria-expanded": found.length > 0 ? "true" : "false",
      "aria-controls": "search-found",
      "aria-activedescendant": found.length ? `found-${chosen}` : null,
      autocomplete: "off",
      spellcheck: "false",
      value: words,
      onfocus: start,
      oninput: (event) => ((words = event.target.value), (chosen = 0), look()),
      onkeydown: (event) => {
        if (event.key === "ArrowDown") chosen = Math.min(chosen + 1, found.length - 1);
        else if (event.key === "ArrowUp") chosen = Math.max(chosen - 1, 0);
        else if (event.key === "Enter") return go(chosen);
        else return;
        event.preventDefault();
        life.update();
      },
    }),
    h(
      "ul",
      { id: "search-found", role: "listbox", "aria-label": "Found", hidden: !(open && words.trim()) },
      found.map((each, index) =>
        h(
          "li",
          { id: `found-${index}`, role: "option", "aria-selected": index === chosen ? "true" : "false", onmousedown: (event) => (event.preventDefault(), go(index)) },
          h("span", { class: "dim kind" }, each.kind),
          h("span", { class: "mono" }, brief(each.names[0], 60)),
          h("span", { class: "dim" }, brief(each.names.slice(1).filter(Boolean).join(" · "), 70)),
        ),
      ),
      found.length === 0 && h("li", { class: "dim", role: "option", "aria-selected": "false", "aria-disabled": "true" }, "Nothing among the newest 500 of each; a whole id in the address opens older ones."),
    ),
  ];
});

function matches(words) {
  const results = [];
  for (const [kind, path, names, href] of KINDS) {
    for (const each of resource(path).data?.items ?? []) {
      const known = names(each).map((name) => String(name ?? ""));
      const place = known.map((name) => name.toLowerCase().indexOf(words)).filter((index) => index >= 0);
      if (place.length) results.push({ kind, names: known, href: href(each), rank: Math.min(...place) });
    }
  }
  return results.sort((one, other) => one.rank - other.rank).slice(0, MOST);
}
