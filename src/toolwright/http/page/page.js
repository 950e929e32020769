// The page: its head, the present view, and what the keys do. Everything else is in `core/`, `elements/` and `views/`.

import { activity } from "./core/activity.js";
import { at, get, send, whenForbidden } from "./core/api.js";
import { follow } from "./core/changes.js";
import { element, h } from "./core/dom.js";
import { brief, relative } from "./core/format.js";
import { bind, bindings, listen } from "./core/keys.js";
import { route } from "./core/routes.js";
import { refresh, resource } from "./core/store.js";
import { stream } from "./core/stream.js";
import { trouble } from "./elements/marks.js";
import "./elements/search.js";

const TABS = [
  ["now", "Now", "n"],
  ["sessions", "Sessions", "s"],
  ["calls", "Calls", "c"],
  ["runs", "Runs", "r"],
  ["schedules", "Schedules", "h"],
  ["approvals", "Approvals", "p"],
  ["tools", "Tools", "t"],
];
const TAB_OF = { session: "sessions", batch: "calls", call: "calls", run: "runs", schedule: "schedules", tool: "tools" };

element("tw-page", (self, life) => {
  let forbidden = null;
  let help = false;
  let entrance = false; // the element of the login is loaded when it is needed
  const approvals = life.use(resource(at(["approvals"], { limit: 200 })));
  life.use(route);
  life.use(stream);
  life.every(1000, () => stream.state !== "live" && life.update());
  whenForbidden(async (problem) => {
    forbidden = problem;
    if (!entrance) {
      await import("./views/login.js");
      entrance = true;
    }
    life.update();
  });
  const keys = {
    "/": ["search", () => document.getElementById("search")?.focus()],
    "?": ["show the keys", () => ((help = !help), life.update())],
    Escape: ["close", () => ((help = false), document.activeElement?.blur(), life.update())],
  };
  for (const [view, title, key] of TABS) keys[`g ${key}`] = [`go to ${title}`, () => route.go(`#/${view}`)];
  life.ended(bind(keys));

  let shown = "";
  life.ended(
    route.watch(() => {
      // A reader that moves to another view begins at its top; one that only changed a filter stays.
      const address = route.current.path.slice(0, 2).join("/");
      if (address !== shown) {
        scrollTo(0, 0);
        shown = address;
      }
    }),
  );

  return () => {
    const waiting = approvals.data?.items?.length ?? 0;
    document.title = `${waiting ? `(${waiting}) ` : ""}${title()} · toolwright`;
    return [
      head(waiting, () => ((help = true), life.update())),
      stream.state === "offline" && !forbidden && offline(),
      h("main", { id: "main", key: "main", tabindex: "-1" }, forbidden && entrance ? login() : view()),
      help && h("tw-keys", { key: "keys", done: () => ((help = false), life.update()) }),
      h("div", { class: "toasts", key: "toasts", role: "status", "aria-live": "polite", opaque: true }),
    ];
  };

  function login() {
    return h("tw-login", {
      key: "login",
      problem: forbidden,
      done: () => {
        forbidden = null;
        stream.retry();
        refresh();
        life.update();
      },
    });
  }
});

function title() {
  const { params, view } = route.current;
  const tab = TABS.find(([name]) => name === (TAB_OF[view] ?? view))?.[1] ?? "Not found";
  const thing = Object.values(params)[0];
  return thing ? `${thing} · ${tab}` : tab;
}

function head(waiting, openHelp) {
  const here = TAB_OF[route.current.view] ?? route.current.view;
  return h(
    "header",
    { class: "top", key: "top" },
    h("a", { class: "brand", href: "#/now", "aria-label": "toolwright, what runs now" }, h("span", { class: "mark", "aria-hidden": "true" }), "toolwright"),
    h(
      "nav",
      { "aria-label": "Views" },
      TABS.map(([view, word]) =>
        h("a", { href: `#/${view}`, "aria-current": here === view ? "page" : null }, word, view === "approvals" && waiting > 0 && h("span", { class: "count" }, waiting)),
      ),
    ),
    h("tw-search", { class: "search" }),
    waiting > 0 && h("a", { class: "waiting", href: "#/approvals" }, `${waiting} waiting for you`),
    connection(),
    h("button", { type: "button", class: "help", "aria-label": "Keys, and who you are", title: "Keys, and who you are (?)", onclick: openHelp }, "?"),
  );
}

function connection() {
  const [tone, shape, word] = {
    live: ["ok", "●", "live"],
    connecting: ["dim", "○", "connecting"],
    offline: ["bad", "◌", "reconnecting"],
    forbidden: ["bad", "✗", "no access"],
  }[stream.state];
  return h("span", { class: `connection status ${tone}`, role: "status" }, h("span", { class: "shape", "aria-hidden": "true" }, shape), ` ${word}`);
}

function offline() {
  return h("div", { class: "offline", key: "offline", role: "status" }, `Offline: heard from the service ${relative(stream.heard)}, reconnecting. What you see may be old.`);
}

function view() {
  const { view: name, params, query, path } = route.current;
  if (route.problem) return trouble({ status: -1, title: "Not loaded", message: route.problem.message });
  if (!route.element) return [h("h1", { class: "unseen" }, "Not found"), h("p", { class: "notice" }, "There is no view at ", h("code", {}, `#/${path.join("/")}`), ". ", h("a", { href: "#/now" }, "See what runs now"))];
  // A view of another thing is another element: nothing of the one before is left in it.
  const key = [name, params.session, params.run, params.batch, params.tool, params.schedule, name === "call" ? params.call : ""].join("\n");
  return h(route.element, { key, ...params, query });
}

element("tw-keys", (self, life) => {
  queueMicrotask(() => self.querySelector("dialog")?.showModal());
  const me = life.use(resource(at(["login"])));
  async function leave() {
    await send("DELETE", at(["login"]));
    location.reload();
  }
  return ({ done }) => {
    const rows = bindings().filter(([key]) => key !== "Escape");
    return h(
      "dialog",
      { class: "keys", "aria-labelledby": "keys-title", onclose: done },
      h("h2", { id: "keys-title" }, "Keys"),
      h("table", {}, h("tbody", {}, rows.map(([key, label]) => h("tr", {}, h("th", { scope: "row" }, key.split(" ").map((each) => h("kbd", {}, each))), h("td", {}, label))))),
      me.data && h("p", {}, "You are ", h("strong", {}, brief(me.data.name, 60)), ` (${me.data.scopes.join(", ")}).`),
      h("p", { class: "actions" }, me.data?.login && h("button", { type: "button", onclick: leave }, "Log out"), h("button", { type: "button", onclick: done }, "Close")),
    );
  };
});

listen();
follow();
activity.start();
route.start();
stream.run();
get(at(["calls"], { limit: 500 })).then((calls) => activity.seed(calls.items), () => {});
