// What runs and waits now. What waits for a person is on top; below it calls and runs, the newest first.

import { activity, SECONDS } from "../core/activity.js";
import { at } from "../core/api.js";
import { element, h } from "../core/dom.js";
import { requests } from "../core/inbox.js";
import { brief, count, duration, instant, ran, waited, waitWords } from "../core/format.js";
import { to } from "../core/routes.js";
import { resource } from "../core/store.js";
import { absent, callLink, heading, ref, said, status, when } from "../elements/marks.js";
import { progress } from "../elements/progress.js";

const SHOWN = 200;

element("tw-now", (self, life) => {
  const approvals = life.use(resource(at(["approvals"], { limit: 200 })));
  const running = life.use(resource(at(["calls"], { status: "running", limit: SHOWN })));
  const waiting = life.use(resource(at(["calls"], { status: "waiting", limit: SHOWN })));
  const latest = life.use(resource(at(["calls"], { limit: 50 })));
  const runs = life.use(resource(at(["runs"], { active: "true", limit: SHOWN })));
  life.use(activity, 300);
  life.every(1000, life.update);

  return () => {
    const open = requests(approvals);
    const calls = [...(running.data?.items ?? []), ...(waiting.data?.items ?? [])];
    const live = (runs.data?.items ?? []).filter((run) => !["completed", "failed", "cancelled", "abandoned"].includes(run.status));
    const ended = (latest.data?.items ?? []).filter((call) => call.finished_at);
    return [
      heading(["Now"]),
      h("tw-strip", { key: "strip", running: running.data?.items.length ?? 0 }),
      open.length > 0 && h("section", { key: "people", "aria-labelledby": "people" }, h("h2", { id: "people" }, "Waits for a person"), h("ul", { class: "rows" }, open.slice(0, 8).map(request)), open.length > 8 && h("p", { class: "more" }, h("a", { href: "#/approvals" }, `All ${open.length}`))),
      live.length > 0 && h("section", { key: "runs" }, h("h2", {}, "Runs"), h("ul", { class: "rows" }, live.map(runRow))),
      h(
        "section",
        { key: "calls" },
        h("h2", {}, "Calls ", h("small", {}, calls.length || "")),
        absent(running, null, { items: null }) ?? (calls.length ? callTable(calls.sort(newest), true) : h("p", { class: "notice dim" }, "Nothing runs now.")),
      ),
      h("section", { key: "latest" }, h("h2", {}, "Finished last"), absent(latest, ["No calls yet: ", h("code", {}, "toolwright call --app … --db … tool name=value")], {}) ?? callTable(ended.slice(0, 30))),
    ];
  };
});

function newest(one, other) {
  return (instant(other.queued_at) ?? 0) - (instant(one.queued_at) ?? 0);
}

function request(each) {
  return h(
    "li",
    { key: each.key },
    h("a", { class: "row", href: to.approval(each.key) }, h("span", { class: "status wait" }, "◌"), h("span", { class: "mono" }, each.tool), said(each.message ?? each.arguments, 110), h("span", { class: "spring dim" }, brief(each.rule ?? each.name ?? "", 40)), when(each.requested_at ?? each.asked_at)),
  );
}

function runRow(run) {
  const id = run.run_id ?? run.id;
  return h("li", { key: id }, h("a", { class: "row", href: to.run(id) }, status(run.status, { word: false }), h("span", { class: "mono" }, run.tool), h("span", { class: "said" }, brief(run.title, 60)), h("span", { class: "spring" }, progress(run.progress)), h("span", { class: "dim" }, brief(run.status_text, 40)), when(run.started_at ?? run.created_at)));
}

/** A table of calls; used by the list of calls and by sessions, too. */
export function callTable(calls, unfinished = false) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": unfinished ? "Calls that run or wait" : "Finished calls" },
    h(
      "table",
      { class: "grid" },
      h("thead", {}, h("tr", {}, ["", "tool", "call", "session", "arguments", unfinished ? "doing" : "outcome"].map((word) => h("th", { scope: "col" }, word || h("span", { class: "unseen" }, "status"))), h("th", { scope: "col", class: "num" }, "waited"), h("th", { scope: "col", class: "num" }, "ran"), h("th", { scope: "col", class: "num" }, "when"))),
      h("tbody", {}, calls.map((call) => callRow(call, unfinished))),
    ),
  );
}

function callRow(call, unfinished) {
  const live = unfinished && activity.running.get(`${call.session}\n${call.scope ?? ""}\n${call.call_id}`);
  const [before, during] = [waited(call), ran(call)];
  return h(
    "tr",
    { key: `${call.session}\n${call.scope}\n${call.call_id}` },
    h("td", {}, status(call.status, { word: false })),
    h("td", { class: "mono" }, h("a", { class: "plain", href: to.tool(call.tool) }, call.tool)),
    h("td", {}, callLink(call)),
    h("td", {}, ref(to.session(call.session), call.session)),
    h("td", { class: "wide" }, said(call.arguments, 90)),
    h("td", { class: "wide" }, unfinished ? doing(call, live) : outcome(call)),
    h("td", { class: "num" }, before > 0.0005 ? duration(before) : ""),
    h("td", { class: "num" }, during === null ? "never" : duration(during)),
    h("td", { class: "num" }, when(call.finished_at ?? call.started_at ?? call.queued_at)),
  );
}

function doing(call, live) {
  if (call.waits_for?.length) return h("span", { class: "wait" }, `waits for ${waitWords(call.waits_for)}`);
  if (live?.progress) return progress(live.progress);
  return said(live?.text ?? "", 60);
}

function outcome(call) {
  const failure = call.outcome?.failure;
  if (failure) return h("span", { class: "bad" }, brief(`${failure.code}: ${failure.message}`, 90));
  return said(call.outcome?.value ?? call.outcome?.text ?? "", 90);
}

// --- the strip of the last minutes

element("tw-strip", (self, life) => {
  life.use(activity, 200);
  life.on(window, "resize", life.update);
  life.on(matchMedia("(prefers-color-scheme: dark)"), "change", life.update);
  return ({ running = 0 }) => {
    const busy = Math.max(running, activity.running.size);
    const ended = activity.series(activity.ended);
    const failed = activity.series(activity.failed);
    const failures = failed.reduce((sum, each) => sum + each, 0);
    const total = ended.reduce((sum, each) => sum + each, 0);
    requestAnimationFrame(() => paint(self.querySelector("canvas"), ended, failed, activity.series(activity.busy)));
    return [
      h("canvas", { class: "strip", role: "img", "aria-label": `In the last ${SECONDS / 60} minutes ${count(total, "call")} ended, ${failures} of them failed` }),
      h("p", { class: "numbers" }, h("span", {}, h("b", {}, activity.perSecond.toFixed(1)), " calls/s"), h("span", {}, h("b", {}, total.toLocaleString("en")), " in 5 min"), h("span", { class: failures ? "bad" : "" }, h("b", {}, failures.toLocaleString("en")), " failed"), h("span", {}, h("b", {}, busy.toLocaleString("en")), " running")),
    ];
  };
});

function paint(canvas, ended, failed, busy) {
  if (!canvas) return;
  const box = canvas.getBoundingClientRect();
  const dots = devicePixelRatio || 1;
  const [width, height] = [Math.round(box.width * dots), Math.round(box.height * dots)];
  if (!width || !height) return;
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const style = getComputedStyle(canvas);
  const colour = (name) => style.getPropertyValue(name).trim();
  const brush = canvas.getContext("2d");
  brush.clearRect(0, 0, width, height);
  const most = Math.max(4, ...ended);
  const step = width / SECONDS;
  const tall = (value, top) => Math.min(height, Math.round((Math.log1p(value) / Math.log1p(top)) * (height - 2 * dots)));
  for (let index = 0; index < SECONDS; index++) {
    const left = Math.round(index * step);
    const wide = Math.max(1, Math.round((index + 1) * step) - left - (step > 3 ? 1 : 0));
    const high = tall(ended[index], most);
    brush.fillStyle = colour("--bar");
    brush.fillRect(left, height - high, wide, high);
    if (failed[index]) {
      const bad = Math.max(2 * dots, Math.round((high * failed[index]) / ended[index]));
      brush.fillStyle = colour("--bad");
      brush.fillRect(left, height - bad, wide, bad);
    }
  }
  const top = Math.max(4, ...busy);
  brush.strokeStyle = colour("--accent");
  brush.lineWidth = dots;
  brush.beginPath();
  busy.forEach((value, index) => brush.lineTo((index + 0.5) * step, height - tall(value, top) - dots / 2));
  brush.stroke();
}
