// The inbox: calls and questions that wait for a person. What will happen in one sentence, arguments in a form made from
// the schema, the difference when they are edited; approve, deny with a reason, and for later calls, too.

import { at, post } from "../core/api.js";
import { element, h } from "../core/dom.js";
import { brief, instant, relative, visible } from "../core/format.js";
import { requests } from "../core/inbox.js";
import { bind } from "../core/keys.js";
import { route, to } from "../core/routes.js";
import { refresh, resource } from "../core/store.js";
import { changes, valueDiff } from "../elements/diff.js";
import "../elements/form.js";
import { value } from "../elements/json.js";
import { absent, action, facts, heading, ref, said, status, when } from "../elements/marks.js";

element("tw-approvals", (self, life) => {
  const open = life.use(resource(at(["approvals"], { limit: 200 })));
  const decided = life.use(resource(at(["decisions"], { limit: 100 })));
  life.every(5000, life.update);
  const mine = new Set(); // what was decided in this window
  let shown = null; // the request that is on the screen
  let taken = null; // one that somebody else decided meanwhile
  const notice = (items, past) => {
    const ended = shown && open.data && !items.some((each) => each.key === shown) ? past.find((each) => each.key === shown) : null;
    if (ended) [taken, shown] = [mine.has(ended.key) ? null : ended, null];
  };
  const step = (by) => {
    const items = requests(open);
    const here = items.findIndex((each) => each.key === self.data.request);
    const next = items[Math.max(0, Math.min(items.length - 1, here < 0 ? 0 : here + by))];
    if (next) route.go(to.approval(next.key), { quiet: true });
  };
  life.ended(bind({ j: ["next request", () => step(1)], k: ["previous request", () => step(-1)] }));

  return ({ request: key }) => {
    const items = requests(open);
    const past = requests(decided);
    const chosen = items.find((each) => each.key === key) ?? (key ? null : items[0]);
    notice(items, past);
    if (chosen && chosen.key !== shown) {
      if (shown) taken = null;
      shown = chosen.key;
    }
    const old = !chosen && key ? past.find((each) => each.key === key) : null;
    return [
      heading(["Approvals"]),
      absent(open, "Nothing waits for a person.") ??
        h("ul", { class: "rows" }, items.map((each) => h("li", { key: each.key }, h("a", { class: `row${each.key === chosen?.key ? " here" : ""}`, href: to.approval(each.key), "aria-current": each.key === chosen?.key ? "true" : null }, h("span", { class: "status wait" }, isQuestion(each) ? "?" : "◌"), h("span", { class: "mono" }, each.tool), said(each.message ?? each.arguments, 110), h("span", { class: "spring dim" }, expiry(each)), when(each.requested_at ?? each.asked_at))))),
      taken && h("div", { class: "notice", role: "alert", key: "taken" }, h("strong", {}, "Somebody else was faster. "), `${brief(taken.decision?.by ?? "somebody", 60)}: `, status(taken.decision?.verdict), " ", h("a", { class: "mono", href: to.approval(taken.key) }, taken.tool), " ", when(taken.decision?.at)),
      chosen && h("tw-request", { key: chosen.key, asked: chosen, decided: (key) => mine.add(key) }),
      !chosen && key && open.data && (old ? decision(old) : decided.data && h("div", { class: "notice", role: "status" }, "This request is not open: it was decided, expired, or cancelled.")),
      h("section", { key: "past" }, h("h2", {}, "Decided"), absent(decided, "No decisions yet.") ?? h("ul", { class: "rows" }, past.map(pastRow))),
    ];
  };
});

const isQuestion = (each) => each.message !== undefined;

function expiry(each) {
  const at = instant(each.deadline);
  return at === null ? "" : at < Date.now() ? "expired" : `expires ${relative(at)}`;
}

function pastRow(each) {
  const told = each.decision ?? {};
  return h("li", { key: each.key }, h("a", { class: "row", href: to.approval(each.key) }, status(told.verdict), h("span", { class: "mono" }, each.tool), said(each.message ?? each.arguments, 80), told.edited && h("span", { class: "wait" }, "edited"), told.always && h("span", { class: "wait" }, "always"), h("span", { class: "spring" }, told.by ? `by ${brief(told.by, 40)}` : ""), h("span", { class: "dim" }, brief(told.via ?? "", 40)), when(told.at)));
}

function decision(each) {
  const told = each.decision ?? {};
  return h(
    "section",
    { class: "request" },
    h("h2", {}, h("span", { class: "mono" }, each.tool), " ", status(told.verdict)),
    facts(["by", told.by], ["from", told.via], ["when", when(told.at)], ["reason", told.reason], ["rule", each.rule], ["call", ref(to.call(each.session, each.call_id, each.scope), each.call_id)]),
    told.edited && told.arguments ? valueDiff(each.arguments, told.arguments) : each.arguments !== undefined && value("Arguments", each.arguments),
    each.answer !== undefined && each.answer !== null && value("Answer", each.answer),
  );
}

// --- one request that waits

element("tw-request", (self, life) => {
  const asked = self.data.asked;
  const question = isQuestion(asked);
  const tool = question ? null : life.use(resource(at(["tools", asked.tool])));
  let edits = false;
  let edited = question ? undefined : structuredClone(asked.arguments);
  let invalid = null;
  let reason = "";
  let always = "once";
  let outcome = null; // what stands, or what went wrong
  let busy = false;

  life.ended(
    bind({
      a: [question ? "answer" : "approve", () => decide("approve")],
      d: [question ? "decline" : "deny", () => self.querySelector("#reason")?.focus()],
      ...(question ? {} : { e: ["edit the arguments", () => edit()] }),
    }),
  );

  function edit() {
    edits = !edits;
    if (!edits) edited = structuredClone(asked.arguments);
    life.update();
  }

  async function decide(verdict) {
    if (busy || (verdict === "approve" && invalid)) return;
    busy = true;
    outcome = null;
    life.update();
    const changed = !question && edits && changes(asked.arguments, edited).length > 0;
    const pattern = { any: {}, same: changed ? edited : asked.arguments }[always];
    const body = verdict === "approve" ? (question ? { answer: edited } : { ...(changed ? { arguments: edited } : {}), ...(pattern ? { always: pattern } : {}) }) : { ...(reason.trim() ? { reason: reason.trim() } : {}), ...(pattern && !question ? { always: pattern } : {}) };
    try {
      const stands = await post(at(["approvals", asked.key, verdict]), body);
      self.data.decided?.(asked.key);
      outcome = { done: verdict, stands };
      refresh((path) => path.startsWith("/v1/approvals") || path.startsWith("/v1/decisions") || path.startsWith("/v1/calls"));
    } catch (problem) {
      outcome = { problem };
      if (problem.status === 409 || problem.status === 410 || problem.status === 404) refresh((path) => path.startsWith("/v1/approvals") || path.startsWith("/v1/decisions"));
    }
    busy = false;
    life.update();
  }

  return () => {
    const definition = tool?.data?.definition ?? tool?.data;
    const late = outcome?.problem && (outcome.problem.status === 409 || outcome.problem.status === 410);
    const closed = outcome?.done || late;
    return h(
      "section",
      { class: "request", "aria-labelledby": "request-title" },
      h("h2", { id: "request-title" }, question ? "A question" : "An approval"),
      h("p", { class: "sentence" }, ...sentence(asked, definition)),
      facts(
        ["conversation", ref(to.session(asked.session), asked.session)],
        ["call", ref(to.call(asked.session, asked.call_id, asked.scope), asked.call_id)],
        asked.rule && ["rule", h("code", {}, brief(asked.rule, 80))],
        asked.cause === "crash" && ["why", h("span", { class: "bad" }, "it was cut off by a crash, and may have run already")],
        ["asked", when(asked.requested_at ?? asked.asked_at)],
        asked.deadline && ["expires", when(asked.deadline)],
      ),
      asked.reason && h("p", {}, brief(asked.reason, 1000)),
      asked.subject && asked.subject.kind !== "tool" && subject(asked.subject),
      question ? h("tw-form", { key: "answer", schema: asked.schema ?? {}, locked: closed, changed: (given, problem) => ((edited = given), (invalid = problem)) }) : argumentsOf(definition, closed),
      outcome?.problem && refusal(outcome.problem),
      outcome?.done && h("div", { class: "notice", role: "status" }, status(question ? (outcome.done === "approve" ? "answered" : "declined") : outcome.done === "approve" ? "approved" : "denied"), " The call goes on. ", h("a", { href: to.call(asked.session, asked.call_id, asked.scope) }, "See the call")),
      !closed && buttons(),
    );
  };

  function argumentsOf(definition, closed) {
    if (!edits) return value("Arguments", asked.arguments, { depth: 4 });
    return [
      h("tw-form", { key: "form", schema: definition?.input_schema ?? {}, given: edited, locked: closed, changed: (given, problem) => ((edited = structuredClone(given)), (invalid = problem), life.update()) }),
      h("h2", {}, "What you change"),
      valueDiff(asked.arguments, edited),
    ];
  }

  function buttons() {
    return h(
      "div",
      { class: "decide" },
      h("button", { type: "button", class: "main", disabled: busy || Boolean(invalid), onclick: () => decide("approve") }, question ? "Answer " : edits && changes(asked.arguments, edited).length ? "Approve as edited " : "Approve ", h("kbd", {}, "a")),
      !question && h("button", { type: "button", "aria-pressed": edits ? "true" : "false", onclick: edit }, edits ? "Do not edit " : "Edit ", h("kbd", {}, "e")),
      !question &&
        h(
          "select",
          { "aria-label": "For which calls", onchange: (event) => ((always = event.target.value), life.update()) },
          [
            ["once", "this call only"],
            ["same", "always, with these arguments"],
            ["any", `always, every call of ${brief(asked.tool, 30)} in this session`],
          ].map(([key, words]) => h("option", { value: key, selected: key === always }, words)),
        ),
      h("span", { class: "deny" }, h("input", { id: "reason", placeholder: "Reason, which the model reads", "aria-label": "Reason for a denial", value: reason, oninput: (event) => (reason = event.target.value), onkeydown: (event) => event.key === "Enter" && decide("deny") }), h("button", { type: "button", class: "danger", disabled: busy, onclick: () => decide("deny") }, question ? "Decline " : "Deny ", h("kbd", {}, "d"))),
      invalid && h("p", { class: "bad", role: "alert" }, invalid),
    );
  }
});

function subject({ kind, text, directory }) {
  return h("section", {}, h("h2", {}, { script: "The script", path: "The path" }[kind] ?? brief(kind, 30), directory ? h("small", {}, ` in ${brief(directory, 80)}`) : ""), h("div", { class: "block" }, h("pre", {}, visible(String(text ?? "")))));
}

function sentence(asked, definition) {
  if (isQuestion(asked)) return [h("span", { class: "mono" }, asked.tool), " asks: ", h("span", { class: "said" }, brief(asked.message, 4000))];
  const hints = definition?.hints ?? {};
  const effect = hints.readonly ? "It only reads." : hints.destructive ? "It can delete or overwrite." : hints.idempotent ? "Running it twice does no more than once." : "It changes something.";
  const reach = hints.open_world ? " It reaches the world outside." : "";
  const names = Object.entries(asked.arguments ?? {}).slice(0, 4).map(([name, given]) => `${name} ${brief(given, 60)}`).join(", ");
  return [h("strong", { class: "mono" }, asked.tool), " will run", names ? [" with ", h("span", { class: "said" }, names.replace(/\.$/, ""))] : "", ". ", h("span", { class: "dim" }, `${effect}${reach}`)];
}

function refusal(problem) {
  if (problem.status === 409 || problem.status === 410) {
    const stands = problem.body?.stands ?? {};
    const told = stands.decision ?? stands;
    return h("div", { class: "notice", role: "alert" }, h("strong", {}, "Somebody else was faster. "), told.by ? [`${brief(told.by, 60)} decided: `, status(told.verdict ?? told.status), " ", when(told.at)] : problem.message);
  }
  const list = problem.body?.problems ?? [];
  return h("div", { class: "notice bad", role: "alert" }, h("strong", {}, problem.title || "This did not work"), " ", problem.message, list.length > 0 && h("ul", {}, list.slice(0, 10).map((each) => h("li", {}, h("code", {}, each.path), " ", each.message))));
}
