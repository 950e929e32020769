// A batch as bars over time: dots while a call waited, a bar while it ran, a stroke if it never did.
//
// Only the rows in sight are elements; the bars are drawn on one canvas above them, so that ten thousand calls cost no
// more than forty. `calls` are records in order, `chosen` is an id, `choose(call)` is called when somebody takes one.

import { element, h } from "../core/dom.js";
import { brief, duration, instant, look, ran, waited, waitWords } from "../core/format.js";
import { bind } from "../core/keys.js";
import { status } from "./marks.js";

const ROW = 24;
const BEYOND = 6; // rows that are drawn above and below those in sight
const TICKS = [1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400];

element("tw-timeline", (self, life) => {
  let rows = [];
  let span = [0, 1];
  let made = null;
  let hovered = null;
  let first = 0;
  let last = 40;
  let byId = new Map();

  life.on(window, "resize", () => place());
  life.on(matchMedia("(prefers-color-scheme: dark)"), "change", life.update);
  const sight = new ResizeObserver(() => place());
  life.ended(() => sight.disconnect());
  queueMicrotask(() => self.isConnected && (sight.observe(self), place(), reveal()));
  life.ended(
    bind({
      j: ["next call", () => step(1)],
      k: ["previous call", () => step(-1)],
    }),
  );

  function arrange(calls) {
    if (made === calls) return;
    made = calls;
    rows = nested(calls);
    byId = new Map(rows.map((row, index) => [row.call.call_id, index]));
    let start = Infinity;
    let end = -Infinity;
    for (const { call } of rows) {
      start = Math.min(start, instant(call.queued_at) ?? Infinity);
      end = Math.max(end, instant(call.finished_at) ?? (call.outcome ? instant(call.queued_at) : Date.now()) ?? -Infinity);
    }
    span = Number.isFinite(start) ? [start, Math.max(end, start + 1)] : [0, 1];
  }

  function place() {
    const box = self.querySelector(".window");
    if (!box) return;
    const begin = Math.max(0, Math.floor(box.scrollTop / ROW) - BEYOND);
    const end = Math.ceil((box.scrollTop + box.clientHeight) / ROW) + BEYOND;
    const moved = begin !== first || end !== last;
    [first, last] = [begin, end];
    if (moved) life.update();
    else paint();
  }

  function step(by) {
    const here = byId.get(self.data.chosen);
    const next = rows[Math.max(0, Math.min(rows.length - 1, here === undefined ? 0 : here + by))];
    if (next) self.data.choose?.(next.call);
    requestAnimationFrame(reveal);
  }

  function reveal() {
    const index = byId.get(self.data.chosen);
    const box = self.querySelector(".window");
    if (index === undefined || !box) return;
    if (index * ROW < box.scrollTop) box.scrollTop = index * ROW;
    else if ((index + 1) * ROW > box.scrollTop + box.clientHeight) box.scrollTop = (index + 1) * ROW - box.clientHeight;
  }

  function hover(id) {
    if (hovered === id) return;
    hovered = id;
    life.update();
  }

  function paint() {
    const canvas = self.querySelector("canvas");
    const box = self.querySelector(".window");
    const lane = self.querySelector(".lane");
    if (!canvas || !lane || !box) return;
    const left = lane.getBoundingClientRect();
    const outer = box.getBoundingClientRect();
    const dots = devicePixelRatio || 1;
    const [width, height] = [Math.round(left.width), Math.min(box.clientHeight, rows.length * ROW)];
    canvas.style.left = `${left.left - outer.left}px`;
    // The rows lie under the canvas, and the scale above it leaves out the bar for scrolling.
    canvas.style.marginBottom = `${-height}px`;
    self.querySelector(".axis").style.paddingRight = `${10 + box.offsetWidth - box.clientWidth}px`;
    if (canvas.width !== Math.round(width * dots) || canvas.height !== Math.round(height * dots)) {
      canvas.width = Math.round(width * dots);
      canvas.height = Math.round(height * dots);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const brush = canvas.getContext("2d");
    const style = getComputedStyle(self);
    const colours = {};
    for (const name of ["ok", "bad", "wait", "run", "dim", "line", "accent", "bar"]) colours[name] = style.getPropertyValue(`--${name}`).trim() || "gray";
    brush.setTransform(dots, 0, 0, dots, 0, 0);
    brush.clearRect(0, 0, width, height);
    const scale = width / (span[1] - span[0]);
    for (const tick of ticks(span, width)) {
      brush.fillStyle = colours.line;
      brush.fillRect(Math.round((tick * 1000) * scale), 0, 1, height);
    }
    const from = Math.max(0, Math.floor(box.scrollTop / ROW));
    const until = Math.min(rows.length, Math.ceil((box.scrollTop + box.clientHeight) / ROW));
    const lit = new Set(rows[byId.get(hovered ?? self.data.chosen)]?.call.waited_for ?? []);
    for (let index = from; index < until; index++) bar(brush, rows[index].call, index * ROW - box.scrollTop, span, scale, colours, lit);
  }

  return ({ calls = [], chosen }) => {
    arrange(calls);
    requestAnimationFrame(paint);
    const lit = new Set(rows[byId.get(hovered ?? chosen)]?.call.waited_for ?? []);
    const seen = rows.slice(first, last);
    const spans = ticks(span, self.querySelector(".lane")?.clientWidth ?? 500);
    const length = (span[1] - span[0]) / 1000;
    return [
      h(
        "div",
        { class: "line axis", role: "presentation" },
        h("span", {}, "call"),
        h("span", { class: "tool" }, "tool"),
        h("span", { class: "lane" }, spans.map((tick) => h("span", { class: "tick", style: { left: `${(tick / length) * 100}%` } }, tick === 0 ? "0" : duration(tick).replace(/\.00(?= )/, "").replace(/(\.\d)0(?= )/, "$1")))),
        h("span", { class: "num waited" }, "waited"),
        h("span", { class: "num" }, "ran"),
        h("span", { class: "why" }, "why it waited"),
      ),
      h(
        "div",
        {
          class: "window",
          role: "grid",
          tabindex: "0",
          "aria-label": "Calls over time",
          "aria-rowcount": String(rows.length),
          "aria-activedescendant": chosen !== undefined && byId.has(chosen) ? `row-${byId.get(chosen)}` : null,
          onscroll: place,
          onmouseleave: () => hover(null),
          onkeydown: (event) => {
            if (event.key === "ArrowDown") step(1);
            else if (event.key === "ArrowUp") step(-1);
            else return;
            event.preventDefault();
          },
        },
        h("canvas", { "aria-hidden": "true", opaque: true }),
        h(
          "div",
          { class: "sizer", role: "rowgroup", style: { height: `${rows.length * ROW}px` } },
          seen.map(({ call, depth }, offset) => {
            const index = first + offset;
            return h(
              "div",
              {
                key: `${index}`,
                id: `row-${index}`,
                role: "row",
                "aria-rowindex": String(index + 1),
                "aria-selected": call.call_id === chosen ? "true" : "false",
                class: `line${call.call_id === chosen ? " chosen" : ""}${lit.has(call.call_id) ? " lit" : ""}`,
                style: { transform: `translateY(${index * ROW}px)` },
                onclick: () => self.data.choose?.(call),
                onmouseenter: () => hover(call.call_id),
              },
              h("span", { role: "gridcell", class: "mono name" }, status(call.status, { word: false }), depth > 0 && h("span", { class: "dim" }, `${"\u00a0\u00a0".repeat(depth - 1)}└ `), brief(call.call_id, 60)),
              h("span", { role: "gridcell", class: "mono dim tool" }, call.tool),
              h("span", { role: "gridcell", class: "lane" }, h("span", { class: "unseen" }, inWords(call, span))),
              h("span", { role: "gridcell", class: "num waited" }, waited(call) > 0.0005 ? duration(waited(call)) : ""),
              h("span", { role: "gridcell", class: "num" }, instant(call.started_at) === null ? "never" : duration(ran(call))),
              h("span", { role: "gridcell", class: "why dim" }, why(call, rows, byId)),
            );
          }),
        ),
      ),
    ];
  };
});

function inWords(call, span) {
  const begin = ((instant(call.queued_at) ?? span[0]) - span[0]) / 1000;
  return `came at ${duration(begin)}`;
}

/** Why a call waited: for those it names, or for the one whose end let it start, where there were many. */
function why(call, rows, byId) {
  if (call.waits_for?.length) return `for ${waitWords(call.waits_for)}`;
  const names = call.waited_for ?? [];
  if (names.length === 0) return "";
  if (names.length < 3) return `for ${names.map((name) => (byId.has(name) ? brief(name, 20) : brief(name, 60))).join(" and ")}`;
  const start = instant(call.started_at) ?? Infinity;
  let best = names[0];
  let ended = -Infinity;
  for (const name of names) {
    const end = instant(rows[byId.get(name)]?.call.finished_at) ?? -Infinity;
    if (end <= start && end > ended) [best, ended] = [name, end];
  }
  return `for ${brief(best, 20)} and others`;
}

/** Each call with its depth; nested calls come below the call that made them. */
function nested(calls) {
  const known = new Set(calls.map((call) => call.call_id));
  const below = new Map();
  for (const call of calls) {
    const parent = known.has(call.parent) && call.parent !== call.call_id ? call.parent : null;
    if (!below.has(parent)) below.set(parent, []);
    below.get(parent).push(call);
  }
  const rows = [];
  const stack = (below.get(null) ?? []).map((call) => ({ call, depth: 0 })).reverse();
  while (stack.length && rows.length < calls.length) {
    const row = stack.pop();
    rows.push(row);
    for (const call of (below.get(row.call.call_id) ?? []).toReversed()) stack.push({ call, depth: row.depth + 1 });
  }
  return rows;
}

function ticks([start, end], width) {
  const length = (end - start) / 1000;
  const step = TICKS.find((each) => (each / length) * width >= 90) ?? length;
  return Array.from({ length: Math.min(40, Math.floor(length / step) + 1) }, (_, number) => number * step).filter((tick) => (tick / length) * width < width - 34 || tick === 0);
}

function bar(brush, call, top, [start, end], scale, colours, lit) {
  const queued = ((instant(call.queued_at) ?? start) - start) * scale;
  const began = instant(call.started_at);
  const ended = instant(call.finished_at) ?? end;
  const { tone } = look(call.status);
  const middle = top + ROW / 2;
  const colour = { ok: colours.ok, bad: colours.bad, run: colours.run, wait: colours.wait }[tone] ?? colours.dim;
  const until = ((began ?? ended) - start) * scale;
  brush.fillStyle = colours.dim;
  for (let x = queued; x < until - 2; x += 5) brush.fillRect(x, middle - 0.75, 1.5, 1.5);
  brush.fillStyle = colour;
  if (began === null) {
    brush.fillRect(Math.max(0, until - 2), top + 5, 2, ROW - 10);
    return;
  }
  const width = Math.max(2, (ended - began) * scale);
  brush.globalAlpha = call.status === "running" || call.status === "waiting" ? 0.55 : 0.85;
  brush.beginPath();
  brush.roundRect(until, top + 6, width, ROW - 12, 2);
  brush.fill();
  brush.globalAlpha = 1;
  if (tone === "bad") {
    brush.font = "11px monospace";
    const words = `✗ ${call.code ?? call.outcome?.failure?.code ?? ""}`;
    const room = brush.canvas.clientWidth - (until + width);
    brush.textAlign = room > 90 ? "left" : "right";
    brush.fillText(words, room > 90 ? until + width + 5 : until - 5, middle + 4);
  }
  if (lit.has(call.call_id)) {
    brush.strokeStyle = colours.accent;
    brush.lineWidth = 2;
    brush.strokeRect(until - 2, top + 3, width + 4, ROW - 6);
  }
}
