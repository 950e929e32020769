// One session: its conversation with the calls in place, its batches, files and key-values; and a chat below it.

import { at, get, send } from "../core/api.js";
import { element, h } from "../core/dom.js";
import { brief, count, shortId, visible } from "../core/format.js";
import { link, route, to } from "../core/routes.js";
import { resource } from "../core/store.js";
import { absent, action, callLink, copy, facts, heading, more, said, status, toast, trouble, when } from "../elements/marks.js";
import { json, value } from "../elements/json.js";
import "../elements/chat.js";
import "../elements/files.js";
import { callTable } from "./now.js";

const TABS = [
  ["", "Conversation"],
  ["calls", "Calls"],
  ["batches", "Batches"],
  ["files", "Files"],
  ["kv", "Key-values"],
  ["secrets", "Secrets"],
];

element("tw-session", (self, life) => {
  const id = self.data.session;
  const info = life.use(resource(at(["sessions", id])));
  return ({ tab = "", query = {} }) => {
    const gone = info.problem?.status === 404 && info.data === undefined;
    const told = info.data;
    return [
      heading(
        [["Session ", h("span", { class: "mono" }, brief(id, 80))], told?.title && told.title !== id && h("small", {}, brief(told.title, 120))].filter(Boolean),
        action("Copy as JSON", async () => copy({ ...(await get(at(["sessions", id]))), messages: (await get(at(["sessions", id, "messages"], { limit: 1000 }))).items })),
        action("Remove", remove, { class: "danger" }),
      ),
      told && facts(["calls", told.calls], ["turns", told.turns || null], ["unfinished", told.unfinished + (told.unfinished_turns ?? 0) || null], ["language", told.locale]),
      h("nav", { class: "tabs", "aria-label": "Parts of the session" }, TABS.map(([name, word]) => h("a", { href: to.session(id, name), "aria-current": name === tab ? "page" : null }, word))),
      info.problem && !gone && told === undefined ? trouble(info.problem) : null,
      part(tab, id, query, gone),
    ];
  };

  async function remove() {
    if (!confirm(`Remove session ${id} with its calls, messages and files?`)) return;
    await send("DELETE", at(["sessions", id]));
    toast("Removed");
    route.go("#/sessions");
  }
});

function part(tab, session, query, gone) {
  const key = `${session}\n${tab}`;
  if (tab === "calls") return h("tw-session-calls", { key, session });
  if (tab === "batches") return h("tw-session-batches", { key, session });
  if (tab === "files") return h("tw-files", { key, session, path: query.path });
  if (tab === "kv") return h("tw-session-kv", { key, session, chosen: query.key });
  if (tab === "secrets") return h("tw-session-secrets", { key, session });
  return h("tw-conversation", { key, session, gone });
}

// --- the conversation

element("tw-conversation", (self, life) => {
  const { session } = self.data;
  const messages = life.use(resource(at(["sessions", session, "messages"], { limit: 1000 })));
  const turns = life.use(resource(at(["sessions", session, "turns"], { limit: 20 })));
  return () => {
    const items = messages.data?.items ?? [];
    const results = new Map();
    for (const each of items) for (const one of each.content?.results ?? []) results.set(`${each.metadata?.turn}\n${one.call_id}`, one);
    const active = (turns.data?.items ?? []).filter((turn) => ["queued", "running", "waiting"].includes(turn.state));
    return [
      absent(messages, "Nothing was said yet. Write below, or let a program run calls in this session.") ?? h("ol", { class: "talk" }, items.filter((each) => !each.content?.results).map((each) => message(each, results, session))),
      more(messages),
      h("tw-chat", { key: "chat", session, active }),
    ];
  };
});

function message(each, results, session) {
  const { content } = each;
  const text = typeof content === "string" ? content : typeof content?.text === "string" ? content.text : null;
  const calls = content?.calls ?? [];
  return h(
    "li",
    { key: String(each.number), class: `message ${each.sender}` },
    h("div", { class: "who" }, h("span", {}, { user: "user", assistant: "model", tool: "tool", runtime: "runtime" }[each.sender] ?? each.sender), each.metadata?.kind && h("span", { class: "dim" }, ` ${brief(each.metadata.kind, 30)}`), " ", when(each.at)),
    h(
      "div",
      { class: "what" },
      text !== null ? text && h("div", { class: "prose" }, visible(text.slice(0, 100_000))) : json(content, { depth: 1 }),
      calls.map((call) => {
        const result = results.get(`${each.metadata?.turn}\n${call.id ?? call.call_id}`);
        const id = call.id ?? call.call_id;
        return h(
          "details",
          { class: "called", key: id },
          h("summary", {}, status(result?.status ?? "running", { word: false }), h("span", { class: "mono" }, ` ${call.name ?? call.tool} `), said(call.arguments, 100)),
          h("div", { class: "inside" }, h("p", {}, callLink({ session, call_id: id, scope: scopeOf(each) })), value("Arguments", call.arguments, { depth: 3 }), result && value("Result, as the model reads it", result.text)),
        );
      }),
      pictures(content?.images),
    ),
  );
}

// The calls of a turn have a scope of their own, so that ids that a provider uses again do not meet.
function scopeOf(each) {
  const { turn, step } = each.metadata ?? {};
  return turn ? `turn/${turn}/${step ?? 1}` : "";
}

function pictures(images = []) {
  const shown = images.filter((image) => image.data && /^image\/(png|jpeg|gif|webp)$/.test(image.media_type));
  return shown.length > 0 && h("div", { class: "pictures" }, shown.map((image, index) => h("img", { src: `data:${image.media_type};base64,${image.data}`, alt: `Image ${index + 1}`, loading: "lazy" })));
}

// --- calls, batches, key-values, secrets

element("tw-session-calls", (self, life) => {
  const calls = life.use(resource(at(["calls"], { session: self.data.session, limit: 200 })));
  return () => absent(calls, "No calls in this session.") ?? [callTable(calls.data.items), more(calls)];
});

element("tw-session-batches", (self, life) => {
  const batches = life.use(resource(at(["sessions", self.data.session, "batches"], { limit: 100 })));
  return () =>
    absent(batches, "No batches in this session.") ?? [
      h(
        "ul",
        { class: "rows" },
        batches.data.items.map((batch) =>
          h("li", { key: batch.batch }, h("a", { class: "row", href: to.batch(batch.batch) }, status(Object.keys(batch.statuses ?? {}).includes("unfinished") ? "running" : batch.statuses?.failure ? "failure" : "success", { word: false }), h("span", { class: "mono", title: batch.batch }, shortId(batch.batch)), h("span", {}, count(batch.calls, "call")), h("span", { class: "dim" }, Object.entries(batch.statuses ?? {}).map(([word, number]) => `${number} ${word}`).join(", ")), h("span", { class: "spring dim mono" }, brief(batch.scope, 40)), when(batch.first_at))),
        ),
      ),
      more(batches),
    ];
});

element("tw-session-kv", (self, life) => {
  const { session } = self.data;
  const keys = life.use(resource(at(["sessions", session, "kv"], { limit: 500 })));
  let shown = null;
  life.ended(() => shown?.stop());

  return ({ chosen }) => {
    if (chosen && shown?.key !== chosen) {
      shown?.stop();
      const source = resource(at(["sessions", session, "kv", chosen]));
      shown = { key: chosen, source, stop: source.watch(() => life.update()) };
    }
    return (
      absent(keys, "No key-values in this session.") ?? [
        h("ul", { class: "rows" }, keys.data.items.map((each) => h("li", { key: each.key }, h("a", { class: `row${each.key === chosen ? " here" : ""}`, href: link(["sessions", session, "kv"], { key: each.key }) }, h("span", { class: "mono" }, brief(each.key, 100)), h("span", { class: "spring" }), when(each.updated_at))))),
        chosen && shown && (absent(shown.source, "") ?? value(chosen, shown.source.data?.value ?? shown.source.data, { depth: 3 })),
      ]
    );
  };
});

element("tw-session-secrets", (self, life) => {
  const { session } = self.data;
  const path = at(["sessions", session, "secrets"]);
  const secrets = life.use(resource(path));
  async function put(event) {
    event.preventDefault();
    const form = event.target;
    const [name, given] = [form.elements.name.value.trim(), form.elements.secret.value];
    try {
      await send("PUT", at(["sessions", session, "secrets", name]), { body: { value: given } });
      form.reset();
      toast(`The secret ${name} is set`);
      secrets.refresh();
    } catch (problem) {
      toast(problem.message, "bad");
    }
  }
  return () => [
    absent(secrets, "No secrets in this session.") ?? h("ul", { class: "rows" }, secrets.data.items.map((each) => h("li", { key: each.name ?? each.key }, h("div", { class: "row" }, h("span", { class: "mono" }, brief(each.name ?? each.key, 100)), h("span", { class: "spring" }), when(each.updated_at), action("Remove", async () => (await send("DELETE", at(["sessions", session, "secrets", each.name ?? each.key])), secrets.refresh()), { class: "danger" }))))),
    h("form", { class: "filters", onsubmit: put }, h("input", { name: "name", class: "mono", placeholder: "name", "aria-label": "Name of the secret", required: true, autocomplete: "off" }), h("input", { name: "secret", type: "password", placeholder: "value", "aria-label": "Value of the secret", required: true, autocomplete: "off" }), h("button", { type: "submit" }, "Set")),
    h("p", { class: "dim" }, "Values are never read back: not here, not by the API, not by a model."),
  ];
});
