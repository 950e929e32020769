// All sessions: how many calls and turns each has, and what is unfinished.

import { at, post } from "../core/api.js";
import { element, h } from "../core/dom.js";
import { brief, bytes } from "../core/format.js";
import { route, to } from "../core/routes.js";
import { resource } from "../core/store.js";
import { absent, action, heading, more, status } from "../elements/marks.js";

element("tw-sessions", (self, life) => {
  const sessions = life.use(resource(at(["sessions"], { limit: 500 })));
  let words = "";

  return () => {
    const wanted = words.trim().toLowerCase();
    const items = (sessions.data?.items ?? []).filter((each) => `${each.id} ${each.title ?? ""}`.toLowerCase().includes(wanted));
    return [
      heading(
        ["Sessions"],
        h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter by id or title", value: words, oninput: (event) => ((words = event.target.value), life.update()) }),
        action("New session", async () => {
          const made = await post(at(["sessions"]), {});
          sessions.refresh();
          route.go(to.session(made.id));
        }),
      ),
      absent(sessions, ["No sessions yet. A session begins with its first call or message: ", h("code", {}, "toolwright ask --app … --db … --session s1 “…”")]) ?? [
        h(
          "div",
          { class: "scroll", tabindex: "0", role: "region", "aria-label": "Sessions" },
          h(
            "table",
            { class: "grid" },
            h("thead", {}, h("tr", {}, ["", "session", "title"].map((word) => h("th", { scope: "col" }, word || h("span", { class: "unseen" }, "status"))), ["calls", "turns", "unfinished", "files", "stored"].map((word) => h("th", { scope: "col", class: "num" }, word)))),
            h("tbody", {}, items.map(row)),
          ),
        ),
        items.length === 0 && h("p", { class: "notice dim" }, "No session matches."),
        more(sessions),
      ],
    ];
  };
});

function row(each) {
  const open = (each.unfinished ?? 0) + (each.unfinished_turns ?? 0);
  const usage = Object.values(each.usage ?? {});
  return h(
    "tr",
    { key: each.id },
    h("td", {}, open > 0 ? status("running", { word: false, title: "has unfinished work" }) : ""),
    h("td", {}, h("a", { class: "ref", href: to.session(each.id) }, brief(each.id, 60))),
    h("td", { class: "wide" }, brief(each.title && each.title !== each.id ? each.title : "", 100)),
    h("td", { class: "num" }, each.calls ?? ""),
    h("td", { class: "num" }, each.turns || ""),
    h("td", { class: "num" }, open || ""),
    h("td", { class: "num" }, each.usage?.files?.count ?? ""),
    h("td", { class: "num" }, usage.length ? bytes(usage.reduce((sum, one) => sum + (one?.bytes ?? 0), 0)) : ""),
  );
}
