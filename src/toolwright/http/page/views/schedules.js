// Schedules: when they fire next, in their zone and in yours; what they did; pause, resume, run now.

import { at, post, send } from "../core/api.js";
import { element, h } from "../core/dom.js";
import { brief, inZone, instant } from "../core/format.js";
import { to } from "../core/routes.js";
import { resource } from "../core/store.js";
import { value } from "../elements/json.js";
import { absent, action, copy, facts, heading, more, ref, status, toast, when } from "../elements/marks.js";

const HERE = Intl.DateTimeFormat().resolvedOptions().timeZone;

element("tw-schedules", (self, life) => {
  const schedules = life.use(resource(at(["schedules"], { limit: 200 })));
  return () => [
    heading(["Schedules"]),
    absent(schedules, ["No schedules yet: ", h("code", {}, "toolwright schedules add --app … --db … tool --cron “0 3 * * *”")]) ?? [
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Schedules" },
        h(
          "table",
          { class: "grid" },
          h("thead", {}, h("tr", {}, ["state", "title", "tool", "session", "when", "next"].map((word) => h("th", { scope: "col" }, word)))),
          h("tbody", {}, schedules.data.items.map((each) => h("tr", { key: each.schedule_id }, h("td", {}, status(each.state)), h("td", { class: "wide" }, h("a", { href: to.schedule(each.schedule_id) }, brief(each.title || each.schedule_id, 80))), h("td", { class: "mono" }, each.tool), h("td", {}, ref(to.session(each.session), each.session)), h("td", {}, h("span", { class: "mono" }, each.cron_expression ?? "once"), h("span", { class: "dim" }, ` ${each.timezone}`)), h("td", {}, when(each.next_trigger_at))))),
        ),
      ),
      more(schedules),
    ],
  ];
});

element("tw-schedule", (self, life) => {
  const id = self.data.schedule;
  const source = life.use(resource(at(["schedules", id])));
  const change = async (state) => {
    await send("PATCH", at(["schedules", id]), { body: { state } });
    source.refresh();
  };
  return () => {
    const told = source.data;
    const upcoming = told?.upcoming ?? [];
    const history = told?.history ?? [];
    return [
      heading(
        ["Schedule", told ? brief(told.title || id, 80) : h("span", { class: "mono" }, brief(id, 60))],
        told?.state === "active" && action("Pause", () => change("paused")),
        told?.state === "paused" && action("Resume", () => change("active")),
        told && told.state !== "cancelled" && action("Run now", async () => {
          const answer = await post(at(["schedules", id, "run-now"]));
          toast("It runs now");
          source.refresh();
          if (answer?.run_id ?? answer?.run) location.hash = to.run(answer.run_id ?? answer.run);
        }),
        told && ["active", "paused"].includes(told.state) && action("Cancel", async () => confirm("Cancel this schedule for good?") && (await send("DELETE", at(["schedules", id])), source.refresh()), { class: "danger" }),
        told && action("Copy as JSON", () => copy(told)),
      ),
      absent(source, "") ?? [
        facts(["state", status(told.state)], ["tool", h("a", { class: "mono", href: to.tool(told.tool) }, told.tool)], ["session", ref(to.session(told.session), told.session)], ["when", h("span", { class: "mono" }, told.cron_expression ?? "once")], ["zone", told.timezone], ["missed instants", told.misfire], ["overlap", told.overlap], ["made", when(told.created_at)]),
        h("h2", {}, "Next"),
        upcoming.length === 0
          ? h("p", { class: "notice dim" }, told.state === "active" ? "No instant is left." : `It is ${told.state}: nothing fires.`)
          : h(
              "table",
              { class: "grid" },
              h("thead", {}, h("tr", {}, h("th", { scope: "col" }, told.timezone), h("th", { scope: "col" }, `${HERE} (you)`), h("th", { scope: "col", class: "num" }, "away"))),
              h("tbody", {}, upcoming.slice(0, 5).map((each) => h("tr", {}, h("td", { class: "mono" }, inZone(instant(each), told.timezone)), h("td", { class: "mono" }, inZone(instant(each))), h("td", { class: "num" }, when(each))))),
            ),
        h("h2", {}, "History"),
        history.length === 0
          ? h("p", { class: "notice dim" }, "It has not fired yet.")
          : h("ul", { class: "rows" }, history.map((each) => h("li", { key: String(each.instant) + each.at }, h("div", { class: "row" }, status(each.what), h("span", { class: "mono" }, inZone(instant(each.instant), told.timezone)), each.run && ref(to.run(each.run), each.run), h("span", { class: "spring" }), when(each.at))))),
        value("Arguments", told.args ?? told.arguments),
      ],
    ];
  };
});
