// The search in the head. Owns finding sessions, calls, runs, schedules and tools by parts of their names and ids.

import { at, get } from "../core/api.js";
import { element, h } from "../core/dom.js";
import { brief } from "../core/format.js";
import { route, to } from "../core/routes.js";
import { resource } from "../core/store.js";

const MOST = 12;

const PAUSE = 120; // milliseconds after the last key until the service is asked
const TOOLS = at(["tools"]);

/** By the member of the answer, or "tools" for those that the page knows: the kind, its names, and its address. */
const KINDS = {
  sessions: ["session", (each) => [each.id, each.title], (each) => to.session(each.id)],
  tools: ["tool", (each) => [each.name, each.definition?.description], (each) => to.tool(each.name)],
  runs: ["run", (each) => [each.run_id, each.title, each.tool], (each) => to.run(each.run_id)],
  calls: ["call", (each) => [each.call_id, each.tool, each.session], (each) => to.call(each.session, each.call_id, each.scope)],
};

element("tw-search", (self, life) => {
  let words = "";
  let chosen = 0;
  let found = [];
  let open = false;
  let stop = null;
  let answer = null; // what the service found: its words, and a list of each kind
  let problem = null;
  let waiting = 0;
  let asked = null;
  const look = () => {
    const wanted = words.trim();
    found = open && wanted ? matches(wanted.toLowerCase(), answer) : [];
    chosen = Math.min(chosen, Math.max(0, found.length - 1));
    life.update();
  };
  async function ask(wanted) {
    asked?.abort();
    asked = new AbortController();
    try {
      const given = await get(at(["search"], { q: wanted, limit: MOST }), { signal: asked.signal });
      [answer, problem] = [{ words: wanted, ...given }, null];
    } catch (error) {
      if (error.name === "AbortError") return;
      problem = error;
    }
    look();
  }
  const typed = () => {
    clearTimeout(waiting);
    const wanted = words.trim();
    if (open && wanted) waiting = setTimeout(() => ask(wanted), PAUSE);
    look();
  };
  const start = () => {
    open = true;
    stop ??= resource(TOOLS).watch(look); // read when somebody searches, and not before
    typed();
  };
  const end = () => {
    open = false;
    clearTimeout(waiting);
    asked?.abort();
    stop?.();
    stop = answer = problem = null;
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
      oninput: (event) => ((words = event.target.value), (chosen = 0), typed()),
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
      found.length === 0 && h("li", { class: "dim", role: "option", "aria-selected": "false", "aria-disabled": "true" }, told(problem, answer?.words === words.trim())),
    ),
  ];
});

function told(problem, answered) {
  if (problem) return problem.message;
  return answered ? "Nothing among the newest; a whole id in the address opens older ones." : "Searching …";
}

/** What the service found for words that these go on from, and tools, the best first. */
function matches(words, answer) {
  const results = [];
  for (const [member, [kind, names, href]] of Object.entries(KINDS)) {
    const items = member === "tools" ? resource(TOOLS).data?.items : answer?.[member];
    for (const each of items ?? []) {
      const known = names(each).map((name) => String(name ?? ""));
      const place = known.map((name) => name.toLowerCase().indexOf(words)).filter((index) => index >= 0);
      if (place.length) results.push({ kind, names: known, href: href(each), rank: Math.min(...place) });
    }
  }
  return results.sort((one, other) => one.rank - other.rank).slice(0, MOST);
}
