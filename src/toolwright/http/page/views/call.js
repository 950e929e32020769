// One call: where the time went, and everything that is recorded of it.

import { at, get, post } from "../core/api.js";
import { element, h } from "../core/dom.js";
import { brief, FINISHED, instant } from "../core/format.js";
import { to } from "../core/routes.js";
import { resource } from "../core/store.js";
import { stream } from "../core/stream.js";
import { callParts, callPath } from "../elements/call_parts.js";
import { absent, action, copy, heading, ref, when } from "../elements/marks.js";
import { json } from "../elements/json.js";
import { progress } from "../elements/progress.js";

const EVENTS = 200;

element("tw-call-view", (self, life) => {
  const path = callPath(self.data.session, self.data.call, self.data.query?.scope);
  const record = life.use(resource(path));
  const events = [];
  let told = null;
  life.ended(
    stream.each((event) => {
      if (event.call_id !== self.data.call || event.session !== self.data.session) return;
      events.push(event);
      if (events.length > EVENTS) events.shift();
      if (event.kind === "call.progress") told = event;
      if (event.kind !== "call.output" && event.kind !== "call.progress") record.refresh();
      life.update();
    }),
  );
  life.every(1000, () => record.data && !FINISHED.has(record.data.status) && life.update());

  // Why it waited is known by its batch: the calls before it are there.
  let batch = null;
  const withReasons = (call) => {
    const waited = (instant(call?.started_at) ?? 0) - (instant(call?.queued_at) ?? 0);
    if (call?.batch && waited > 1) batch ??= life.use(resource(at(["batches", call.batch], { session: call.session, scope: call.scope })));
    const known = batch?.data?.calls.find((each) => each.call_id === call.call_id);
    return known ? { ...call, waited_for: known.waited_for } : call;
  };

  return () => {
    const call = withReasons(record.data);
    const output = events.filter((event) => event.kind === "call.output").map((event) => event.text).join("");
    return [
      heading(
        [["Session ", ref(to.session(self.data.session), self.data.session)], ["call ", h("span", { class: "mono" }, brief(self.data.call, 80))]],
        call && !FINISHED.has(call.status) && call.batch && action("Cancel its batch", () => post(at(["batches", call.batch, "cancel"])), { class: "danger" }),
        action("Copy as JSON", async () => copy(await get(path))),
      ),
      absent(record, "") ?? [
        told && !FINISHED.has(call.status) && h("p", {}, progress(told)),
        callParts(call),
        output && h("section", {}, h("h2", {}, "Output, live"), h("div", { class: "block" }, h("pre", {}, output.slice(-20000)))),
        events.length > 0 && h("section", {}, h("h2", {}, "Events since you look"), h("ul", { class: "rows" }, events.slice(-30).toReversed().map((event) => h("li", {}, h("div", { class: "row" }, h("span", { class: "mono" }, event.kind), h("span", { class: "spring" }), when(event.at)))))),
        h("details", { class: "fold" }, h("summary", {}, "The record as JSON"), h("div", { class: "block" }, json(call, { depth: 1 }))),
      ],
    ];
  };
});
