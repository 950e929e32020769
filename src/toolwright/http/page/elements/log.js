// The log of a run, followed while it is written. Owns reading it, searching it, and staying at its end.

import { at, BASE, send } from "../core/api.js";
import { element, h } from "../core/dom.js";
import { bytes, visible } from "../core/format.js";
import { messages } from "../core/stream.js";
import { trouble } from "./marks.js";

const KEPT = 1024 * 1024; // characters, from the end
const SHOWN = 2_000; // lines

element("tw-log", (self, life) => {
  const path = at(["runs", self.data.run, "log"]);
  const stop = new AbortController();
  let text = "";
  let words = "";
  let problem = null;
  let follows = true;
  let ended = false;
  life.ended(() => stop.abort());
  follow();

  async function follow() {
    let last = null;
    while (!stop.signal.aborted) {
      try {
        const headers = { Accept: "text/event-stream, text/plain", ...(last ? { "Last-Event-ID": last } : {}) };
        const answer = await send("GET", path, { raw: true, headers, signal: stop.signal });
        problem = null;
        if (/event-stream/.test(answer.headers.get("content-type") ?? "")) {
          for await (const each of messages(answer.body)) {
            if (each.id) last = each.id;
            take(each);
            if (ended) return;
          }
        } else {
          add(await answer.text());
          return;
        }
        if (!self.data.live) return;
      } catch (error) {
        if (error.name === "AbortError") return;
        problem = error;
        life.update();
        if (error.status && error.status !== 503) return;
      }
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }

  function take({ event, data }) {
    if (!data) return;
    let told;
    try {
      told = JSON.parse(data);
    } catch {
      told = data;
    }
    if (event === "end" || told?.kind === "end" || told?.ended) ended = true;
    const piece = typeof told === "string" ? told : told?.text ?? told?.payload?.text ?? (event === "output" ? told?.data?.text : undefined);
    if (typeof piece === "string") add(piece);
  }

  function add(piece) {
    text += piece;
    if (text.length > KEPT) text = text.slice(-KEPT);
    life.update();
    if (follows) requestAnimationFrame(() => requestAnimationFrame(() => bottom()));
  }

  function bottom() {
    const box = self.querySelector(".log");
    if (box) box.scrollTop = box.scrollHeight;
  }

  return () => {
    const lines = text.split("\n");
    const wanted = words.toLowerCase();
    const found = wanted ? lines.filter((line) => line.toLowerCase().includes(wanted)) : lines;
    return [
      h("h2", {}, "Log ", h("small", {}, text ? bytes(text.length) : "")),
      h(
        "div",
        { class: "filters" },
        h("input", { type: "search", placeholder: "Search the log", "aria-label": "Search the log", value: words, oninput: (event) => ((words = event.target.value), life.update()) }),
        h("label", {}, h("input", { type: "checkbox", checked: follows, onchange: (event) => ((follows = event.target.checked), follows && bottom()) }), " follow"),
        wanted && h("span", { class: "dim", role: "status" }, `${found.length} of ${lines.length} lines`),
      ),
      problem && trouble(problem),
      text
        ? h("div", { class: "block log", tabindex: "0", role: "log", "aria-label": "Log of the run", onscroll: (event) => (follows = event.target.scrollTop + event.target.clientHeight >= event.target.scrollHeight - 30) }, h("pre", {}, visible(found.slice(-SHOWN).join("\n"))))
        : !problem && h("p", { class: "notice dim" }, "Nothing was written yet."),
    ];
  };
});
