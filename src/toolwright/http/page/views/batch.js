// A batch over time: what overlapped, what waited, and for whom. The chosen call is below it, with an address of its own.

import { at, get, post } from "../core/api.js";
import { element, h } from "../core/dom.js";
import { brief, count, duration, FINISHED, instant, ran, shortId } from "../core/format.js";
import { route, to } from "../core/routes.js";
import { resource } from "../core/store.js";
import { stream } from "../core/stream.js";
import { callParts, callPath } from "../elements/call_parts.js";
import { absent, action, copy, heading, ref, trouble } from "../elements/marks.js";
import "../elements/timeline.js";

element("tw-batch", (self, life) => {
  const batch = life.use(resource(at(["batches", self.data.batch])));
  let words = "";
  let filtered = [];
  let source = null;
  let detail = null;
  let calls = [];
  const places = new Map();
  const changed = new Set();

  // While it runs, events say all that changed; the whole is read again when it is finished.
  life.ended(
    stream.each((event) => {
      if (event.batch !== self.data.batch || !event.call_id) return;
      const index = places.get(event.call_id);
      if (index === undefined) return batch.refresh();
      if (event.kind === "call.started") calls[index] = { ...calls[index], status: "running", started_at: event.at };
      else if (event.kind === "call.finished")
        calls[index] = finished(calls[index], event);
      else return;
      changed.add(event.call_id);
      life.update();
    }),
  );

  function arrange() {
    if (source !== batch.data) {
      source = batch.data;
      calls = [...(source?.calls ?? source?.items ?? [])];
      places.clear();
      calls.forEach((call, index) => places.set(call.call_id, index));
      changed.add("all");
    }
    if (changed.size === 0) return;
    changed.clear();
    const wanted = words.trim().toLowerCase();
    filtered = wanted ? calls.filter((call) => `${call.call_id} ${call.tool} ${call.status}`.toLowerCase().includes(wanted)) : [...calls];
  }

  return ({ call: chosen }) => {
    arrange();
    const missing = absent(batch, "This batch has no calls.", { items: calls });
    const record = calls[places.get(chosen)];
    if (record && detail?.path !== callPath(record.session ?? batch.data.session, chosen, record.scope)) {
      const path = callPath(record.session ?? batch.data.session, chosen, record.scope);
      const known = resource(path);
      detail?.stop();
      detail = { path, known, stop: known.watch(() => life.update()) };
    }
    const live = calls.some((call) => !FINISHED.has(call.status));
    return [
      heading(
        [batch.data?.session && ["Session ", ref(to.session(batch.data.session), batch.data.session)], ["batch ", h("span", { class: "mono", title: self.data.batch }, shortId(self.data.batch))], calls.length > 0 && h("small", {}, summary(calls))].filter(Boolean),
        live && action("Cancel", () => post(at(["batches", self.data.batch, "cancel"])), { class: "danger" }),
        action("Copy as JSON", async () => copy(await get(at(["batches", self.data.batch])))),
      ),
      missing ?? [
        calls.length > 12 && h("div", { class: "filters" }, h("input", { type: "search", placeholder: "Filter by call, tool or status", "aria-label": "Filter by call, tool or status", value: words, oninput: (event) => ((words = event.target.value), changed.add("words"), life.update()) }), h("span", { class: "dim", role: "status" }, filtered.length < calls.length ? `${count(filtered.length, "call")} of ${calls.length}` : "")),
        h("tw-timeline", { key: "timeline", calls: filtered, chosen, choose: (call) => route.go(to.batch(self.data.batch, call.call_id), { quiet: Boolean(chosen) }) }),
        h("p", { class: "dim keyline" }, "··· waited  ", h("span", { class: "ok" }, "▆"), " ran  ", h("span", { class: "bad" }, "✗"), " failed  │ never ran. Point at a call to see what it waited for."),
      ],
      chosen && h("section", { key: `call-${chosen}`, class: "below" }, h("h2", {}, h("a", { href: record ? to.call(record.session ?? batch.data?.session, chosen, record.scope) : "#/calls", class: "mono" }, brief(chosen, 80)), h("a", { class: "close", href: to.batch(self.data.batch), "aria-label": "Close the call" }, "✗")), record ? callParts(detail?.known.data ? { ...detail.known.data, waited_for: record.waited_for } : record) : batch.data && trouble({ status: 404, message: "This batch has no such call." })),
    ];
  };
});

/** A call as the event of its end tells it. Its start may have been before the page began to listen. */
function finished(call, event) {
  const started = event.run_time ? new Date(instant(event.at) - event.run_time * 1000).toISOString() : null;
  return {
    ...call,
    status: event.status,
    started_at: call.started_at ?? started,
    finished_at: event.at,
    queue_time: event.queue_time,
    run_time: event.run_time,
    waited_for: call.waited_for?.length ? call.waited_for : (event.waited_for ?? []),
    outcome: event.outcome ?? call.outcome ?? {},
  };
}

function summary(calls) {
  let [start, end, work] = [Infinity, -Infinity, 0];
  const edges = [];
  for (const call of calls) {
    const [queued, from, until] = [instant(call.queued_at), instant(call.started_at), instant(call.finished_at)];
    start = Math.min(start, queued ?? start);
    end = Math.max(end, until ?? Date.now());
    work += ran(call) ?? 0;
    if (from !== null && until !== null) edges.push([from, 1], [until, -1]);
  }
  edges.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
  let [now, most] = [0, 0];
  for (const [, change] of edges) most = Math.max(most, (now += change));
  return `${count(calls.length, "call")}, ${duration((end - start) / 1000)}; ${duration(work)} of running, up to ${most} at once`;
}
