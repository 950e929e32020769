// One background run: its progress, its log as it is written, what it started, and who took it over.

import { at, post } from "../core/api.js";
import { element, h } from "../core/dom.js";
import { brief, duration, instant } from "../core/format.js";
import { to } from "../core/routes.js";
import { resource } from "../core/store.js";
import "../elements/log.js";
import { value } from "../elements/json.js";
import { absent, action, copy, facts, heading, ref, status, toast, when } from "../elements/marks.js";
import { progress } from "../elements/progress.js";
import { runTable } from "./runs.js";

const OVER = new Set(["completed", "failed", "cancelled", "abandoned"]);

element("tw-run", (self, life) => {
  const id = self.data.run;
  const source = life.use(resource(at(["runs", id])));
  const all = life.use(resource(at(["runs"], { limit: 200 })));
  life.every(1000, () => source.data && !OVER.has(source.data.status) && life.update());

  async function signal(event) {
    event.preventDefault();
    const form = event.target;
    const text = form.elements.payload.value.trim();
    try {
      const payload = text === "" ? null : JSON.parse(text);
      await post(at(["runs", id, "signals", form.elements.name.value.trim()]), { payload });
      toast("The signal was sent");
      form.reset();
    } catch (problem) {
      toast(problem instanceof SyntaxError ? `The payload is not JSON: ${problem.message}` : problem.message, "bad");
    }
  }

  return () => {
    const run = source.data;
    const live = run && !OVER.has(run.status);
    const started = instant(run?.started_at);
    const children = (all.data?.items ?? []).filter((each) => each.parent === id);
    const takeovers = (run?.events ?? []).filter((event) => event.payload?.taken_over_from);
    return [
      heading(
        ["Run", run ? brief(run.title || id, 100) : h("span", { class: "mono" }, brief(id, 60))],
        live && action("Cancel", async () => (await post(at(["runs", id, "cancel"]), { reason: "cancelled on the page" }), source.refresh()), { class: "danger" }),
        run?.status === "abandoned" && action("Resume", async () => (await post(at(["runs", id, "resume"])), source.refresh()), { title: "The step in doubt may happen again" }),
        run && action("Copy as JSON", () => copy(run)),
      ),
      absent(source, "") ?? [
        facts(
          ["status", status(run.status)],
          ["tool", h("a", { class: "mono", href: to.tool(run.tool) }, run.tool)],
          ["session", ref(to.session(run.session), run.session)],
          run.schedule && ["schedule", ref(to.schedule(run.schedule), run.schedule)],
          run.parent && ["started by", ref(to.run(run.parent), run.parent)],
          ["attempts", run.attempts > 1 ? h("span", { class: "wait" }, `${run.attempts}`) : run.attempts],
          run.worker && ["worker", h("span", { class: "mono" }, brief(run.worker, 40))],
          ["began", when(run.started_at)],
          started !== null && ["took", duration(((instant(run.ended_at) ?? Date.now()) - started) / 1000)],
          run.tracked && ["", "happens elsewhere"],
        ),
        (run.progress || run.status_text) && h("p", { class: "progressline" }, progress(run.progress), " ", h("span", {}, brief(run.status_text, 200))),
        takeovers.length > 0 && h("ul", { class: "rows" }, takeovers.map((event) => h("li", {}, h("div", { class: "row" }, h("span", { class: "status wait" }, "◐ taken over"), `by ${event.payload.worker} from ${event.payload.taken_over_from}`, h("span", { class: "spring" }), when(event.at))))),
        h("tw-log", { key: "log", run: id, live }),
        children.length > 0 && h("section", {}, h("h2", {}, "Started by it"), runTable(children)),
        live && h("form", { class: "filters", onsubmit: signal }, h("input", { name: "name", class: "mono", placeholder: "signal", "aria-label": "Name of a signal", required: true, autocomplete: "off" }), h("input", { name: "payload", class: "mono", placeholder: "payload as JSON", "aria-label": "Payload of the signal, as JSON", autocomplete: "off" }), h("button", { type: "submit" }, "Send a signal")),
        run.outcome?.failure && h("div", { class: "notice bad" }, h("strong", {}, run.outcome.failure.code), " ", brief(run.outcome.failure.message, 2000)),
        run.arguments !== undefined && value("Arguments", run.arguments),
        run.outcome && !run.outcome.failure && value("Outcome", run.outcome.value ?? run.outcome.text),
      ],
    ];
  };
});
