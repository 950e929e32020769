// A value as a tree that opens and closes. Owns showing any JSON, however long, without making more of it than is seen.

import { element, h } from "../core/dom.js";
import { brief, bytes, visible } from "../core/format.js";
import { copy } from "./marks.js";

const FIRST = 100; // entries of a list that are shown at once
const TEXT = 4_000; // characters of a text that are shown at once

/** Show a value; `depth` levels are open at first. */
export function json(value, { depth = 2, label } = {}) {
  return h("tw-json", { given: value, depth, label });
}

element("tw-json", (self, life) => {
  const open = new Map(); // the path of a branch -> whether it is open
  const shown = new Map(); // the path of a branch or text -> how much of it is shown

  function entry(name, value, path, depth) {
    const label = name === null ? null : [h("span", { class: "name" }, visible(String(name))), ": "];
    if (value !== null && typeof value === "object") return branch(label, value, path, depth);
    return h("div", { class: "entry" }, label, leaf(value, path));
  }

  function leaf(value, path) {
    if (typeof value !== "string") return h("span", { class: "literal" }, String(value));
    const most = shown.get(path) ?? TEXT;
    const rest = value.length - most;
    return [
      h("span", { class: "text" }, `"${visible(value.slice(0, most))}${rest > 0 ? "" : '"'}`),
      rest > 0 && h("button", { type: "button", class: "link", onclick: () => (shown.set(path, most * 10), life.update()) }, ` … ${bytes(rest)} more`),
    ];
  }

  function branch(label, value, path, depth) {
    const list = Array.isArray(value);
    const names = list ? value : Object.keys(value);
    if (names.length === 0) return h("div", { class: "entry" }, label, list ? "[]" : "{}");
    if (list && names.length <= 60 && names.every((each) => typeof each === "number" || typeof each === "boolean")) return h("div", { class: "entry" }, label, h("span", { class: "literal" }, `[${names.join(", ")}]`));
    const isOpen = open.get(path) ?? depth > 0;
    const most = shown.get(path) ?? FIRST;
    return h(
      "details",
      { open: isOpen, ontoggle: (event) => event.target.open !== isOpen && (open.set(path, event.target.open), life.update()) },
      h("summary", {}, label, isOpen ? h("span", { class: "dim" }, list ? `[${names.length}]` : `{${names.length}}`) : h("span", { class: "dim" }, brief(value, 100))),
      isOpen &&
        h(
          "div",
          { class: "inside" },
          (list ? value.slice(0, most).map((_, index) => index) : names.slice(0, most)).map((name) => entry(name, value[name], `${path}/${name}`, depth - 1)),
          names.length > most && h("button", { type: "button", class: "link", onclick: () => (shown.set(path, most * 10), life.update()) }, `… ${names.length - most} more`),
        ),
    );
  }

  return ({ given, depth = 2 }) => entry(null, given === undefined ? null : given, "", depth);
});

/** A value with a title and a button that copies it. */
export function value(title, given, options) {
  return h("section", { class: "value" }, h("h2", {}, title, " ", h("button", { type: "button", class: "link", "aria-label": `Copy ${title}`, onclick: () => copy(given) }, "copy")), h("div", { class: "block", tabindex: "0", role: "region", "aria-label": title }, json(given, options)));
}
