// A chat with the model of the app: the answer as it is written, with its calls in place; steering while it works.

import { at, BASE, newKey, post, Problem } from "../core/api.js";
import { element, h } from "../core/dom.js";
import { brief, visible } from "../core/format.js";
import { to } from "../core/routes.js";
import { refresh } from "../core/store.js";
import { messages } from "../core/stream.js";
import { action, said, status, trouble } from "./marks.js";

element("tw-chat", (self, life) => {
  const { session } = self.data;
  let text = "";
  let turn = null; // the turn that is being written: {id, asked, said, calls, state}
  let problem = null;
  let stop = null;
  life.ended(() => stop?.abort());

  async function ask() {
    const asked = text.trim();
    if (!asked) return;
    if (self.data.active?.length || turn) return steer(asked);
    text = "";
    problem = null;
    turn = { id: null, asked, said: "", calls: new Map(), state: "running" };
    life.update();
    stop = new AbortController();
    try {
      const answer = await fetch(BASE + at(["sessions", session, "turns"]), {
        method: "POST",
        headers: { "Content-Type": "application/json", Accept: "text/event-stream", "Idempotency-Key": newKey(), "X-Toolwright-Page": "1" },
        body: JSON.stringify({ message: asked }),
        signal: stop.signal,
      });
      if (!answer.ok) throw new Problem(answer.status, await answer.json().catch(() => ({})));
      turn.id = (answer.headers.get("location") ?? "").split("/").at(-1) || null;
      for await (const each of messages(answer.body)) if (each.data) take(JSON.parse(each.data), each.event);
    } catch (error) {
      // A turn goes on without the one who asked; the events of the page say how it ends.
      if (error.name !== "AbortError") problem = error;
    }
    turn = null;
    refresh((path) => path.startsWith(`/v1/sessions/${encodeURIComponent(session)}/`));
    life.update();
  }

  function take(event, name) {
    const kind = event.kind ?? event.type ?? name;
    const data = event.data ?? event;
    if (kind === "text") turn.said += data.text ?? "";
    else if (kind === "model.retrying") turn.said = "";
    else if (kind === "model.answered") turn.said = "";
    else if (kind === "call.started") turn.calls.set(data.call_id, { ...data, status: "running" });
    else if (kind === "call.waiting") turn.calls.set(data.call_id, { ...turn.calls.get(data.call_id), ...data, status: "waiting" });
    else if (kind === "call.finished") turn.calls.set(data.call_id, { ...turn.calls.get(data.call_id), ...data });
    else if (kind === "turn.waiting") turn.state = "waiting";
    life.update();
  }

  async function steer(words) {
    const running = turn?.id ?? self.data.active?.[0]?.id;
    if (!running) return;
    try {
      await post(at(["turns", running, "steer"]), { message: words });
      text = "";
    } catch (error) {
      problem = error;
    }
    life.update();
  }

  return ({ active = [] }) => {
    const running = turn?.id ?? active[0]?.id;
    return [
      turn &&
        h(
          "ol",
          { class: "talk", key: "turn" },
          h("li", { class: "message user" }, h("div", { class: "who" }, "user"), h("div", { class: "what" }, h("div", { class: "prose" }, visible(turn.asked)))),
          h(
            "li",
            { class: "message assistant", "aria-live": "polite" },
            h("div", { class: "who" }, "model ", status(turn.state)),
            h("div", { class: "what" }, [...turn.calls.values()].map((call) => h("div", { class: "row", key: call.call_id }, status(call.status, { word: false }), h("a", { class: "mono", href: to.call(session, call.call_id, call.scope) }, call.tool), said(call.arguments, 80), call.status === "waiting" && h("a", { href: "#/approvals" }, "waits for a person"))), h("div", { class: "prose" }, visible(turn.said))),
          ),
        ),
      !turn && active.map((each) => h("p", { class: "notice", key: each.id }, status(each.state), " ", said(each.message, 80), each.state === "waiting" && [" ", h("a", { href: "#/approvals" }, "see what it waits for")])),
      problem && trouble(problem),
      h(
        "form",
        {
          class: "chat",
          key: "form",
          onsubmit: (event) => {
            event.preventDefault();
            ask();
          },
        },
        h("textarea", {
          rows: "2",
          placeholder: running ? "Steer: the model reads this at its next call" : "Ask the model",
          "aria-label": running ? "Steer the running turn" : "Message to the model",
          value: text,
          oninput: (event) => (text = event.target.value),
          onkeydown: (event) => {
            if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
              event.preventDefault();
              ask();
            }
          },
        }),
        h("div", { class: "actions" }, running && action("Stop", () => post(at(["turns", running, "cancel"]), { reason: "stopped on the page" }), { class: "danger" }), h("button", { type: "submit", class: "main" }, running ? "Steer" : "Ask")),
      ),
    ];
  };
});
