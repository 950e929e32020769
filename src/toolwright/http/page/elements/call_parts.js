// The parts of one call: where its time went, attempts, steps, waits, arguments, outcome, files. Used by the view of a
// call, and below the timeline of its batch.

import { at } from "../core/api.js";
import { h } from "../core/dom.js";
import { brief, duration, instant, visible } from "../core/format.js";
import { link, to } from "../core/routes.js";
import { value } from "./json.js";
import { facts, ref, status, when } from "./marks.js";

export function callParts(call) {
  const outcome = call.outcome;
  const failure = outcome?.failure;
  return [
    facts(
      ["status", status(call.status)],
      ["tool", h("a", { class: "mono", href: to.tool(call.tool) }, call.tool)],
      ["session", ref(to.session(call.session), call.session)],
      call.batch && ["batch", ref(to.batch(call.batch, call.call_id, call.session), call.batch)],
      call.scope && ["scope", h("code", {}, brief(call.scope, 60))],
      call.parent && ["part of", ref(to.call(call.session, call.parent, call.scope), call.parent)],
      ["asked by", call.source],
      ["attempts", call.attempts],
      ["came", when(call.queued_at)],
      outcome?.replayed && ["replayed", "yes: the recorded outcome"],
      call.cut_off && ["owner", h("span", { class: "bad" }, "gone: the process died; recovery continues it")],
    ),
    times(call),
    failure && h("div", { class: "notice bad" }, h("p", {}, h("strong", {}, failure.code), " ", h("span", { class: "dim" }, [failure.category, failure.source].filter(Boolean).join(" · "))), h("pre", {}, visible(String(failure.message ?? "").slice(0, 20000)))),
    decision(outcome),
    steps(call),
    waits(call),
    value("Arguments", call.arguments),
    outcome && result(outcome, call),
  ];
}

function times(call) {
  const queued = instant(call.queued_at);
  const started = instant(call.started_at);
  const ended = instant(call.finished_at) ?? Date.now();
  if (queued === null) return null;
  const parts = [];
  const waits = (call.waits ?? []).filter((wait) => instant(wait.opened_at) !== null);
  const asleep = (kinds) => waits.filter((wait) => kinds.includes(wait.kind)).reduce((sum, wait) => sum + Math.max(0, (instant(wait.resolved_at) ?? Date.now()) - instant(wait.opened_at)), 0) / 1000;
  const person = asleep(["approval", "crash", "question"]);
  const outside = asleep(["completion", "event", "signal", "sleep", "connection"]);
  const before = ((started ?? ended) - queued) / 1000;
  const claim = call.waited_for?.length ? Math.max(0, before - person) : 0;
  const running = started === null ? 0 : (ended - started) / 1000;
  if (person) parts.push(["waiting for a person", person, "wait"]);
  if (claim > 0.0005) parts.push([`waiting for ${call.waited_for.slice(0, 2).join(", ")}`, claim, "queue"]);
  else if (before - person > 0.0005) parts.push(["queued", before - person, "queue"]);
  if (outside) parts.push(["waiting for something outside", outside, "wait"]);
  if (started !== null) parts.push(["running", Math.max(0, running - outside - (call.started_at && person && before < person ? person : 0)), call.outcome?.failure ? "bad" : "run"]);
  const total = parts.reduce((sum, [, seconds]) => sum + seconds, 0) || 1;
  return h(
    "section",
    { class: "times" },
    h("h2", {}, "Where the time went ", h("small", {}, duration((ended - queued) / 1000))),
    h("div", { class: "spent", "aria-hidden": "true" }, parts.map(([, seconds, tone]) => h("span", { class: `part ${tone}`, style: { "flex-grow": String(Math.max(0.004, seconds / total)) } }))),
    h("ul", { class: "legend" }, parts.length === 0 && h("li", { class: "dim" }, "It never ran."), parts.map(([words, seconds, tone]) => h("li", {}, h("span", { class: `swatch ${tone}` }), `${words} `, h("span", { class: "num" }, duration(seconds))))),
  );
}

function decision(outcome) {
  const told = outcome?.decision;
  if (!told) return null;
  return h("section", {}, h("h2", {}, "Decision"), facts(["", status(told.verdict)], ["by", told.by], ["when", when(told.at)], ["from", told.via], ["reason", told.reason]));
}

function steps(call) {
  const list = (call.steps ?? []).filter((each) => each.kind === "step" || each.kind === undefined);
  if (list.length === 0) return null;
  const began = instant(call.started_at);
  return h(
    "section",
    {},
    h("h2", {}, "Steps"),
    h("ul", { class: "rows" }, list.map((step, index) => h("li", { key: `${index}` }, h("div", { class: "row" }, status(step.failed ? "failure" : step.done ? "success" : "running", { word: false }), h("span", { class: "mono" }, brief(step.name, 100)), h("span", { class: "spring dim" }, began !== null && instant(step.at) !== null ? `${duration((instant(step.at) - began) / 1000)} after its start` : ""), when(step.at))))),
  );
}

function waits(call) {
  const list = call.waits ?? [];
  if (list.length === 0) return null;
  return h(
    "section",
    {},
    h("h2", {}, "Waits"),
    h("ul", { class: "rows" }, list.map((wait) => h("li", {}, h("div", { class: "row" }, status(wait.open ? "waiting" : { ok: "success", error: "failure" }[wait.status] ?? wait.status, { word: false }), h("span", { class: "mono" }, wait.kind, wait.name ? `:${brief(wait.name, 60)}` : ""), wait.by && h("span", {}, `by ${brief(wait.by, 60)}`), wait.reason && h("span", { class: "dim" }, brief(wait.reason, 80)), wait.open && ["approval", "crash", "question"].includes(wait.kind) && h("a", { href: "#/approvals" }, "decide"), h("span", { class: "spring dim" }, wait.deadline ? ["until ", when(wait.deadline)] : ""), when(wait.opened_at))))),
  );
}

function result(outcome, call) {
  const pictures = (outcome.images ?? []).filter((image) => image.data && /^image\/(png|jpeg|gif|webp)$/.test(image.media_type));
  const text = outcome.text ?? "";
  const shown = outcome.value === undefined || outcome.value === null ? text : outcome.value;
  return [
    !outcome.failure && value("Outcome", shown),
    pictures.length > 0 && h("section", {}, h("h2", {}, "Images"), h("div", { class: "pictures" }, pictures.map((image, index) => h("img", { src: `data:${image.media_type};base64,${image.data}`, alt: `Image ${index + 1} of the outcome`, loading: "lazy" })))),
    outcome.spilled_to && h("p", {}, "The whole output is in ", h("a", { href: link(["sessions", call.session, "files"], { path: outcome.spilled_to }) }, outcome.spilled_to)),
    outcome.raw_output && value("Raw output", outcome.raw_output),
    typeof outcome.value !== "string" && text && outcome.value != null && h("details", { class: "fold" }, h("summary", {}, "As the model reads it"), h("div", { class: "block" }, h("pre", {}, visible(text.slice(0, 100000))))),
  ];
}

export const callPath = (session, call, scope) => at(["sessions", session, "calls", call], { scope });
