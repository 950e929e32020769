// What differs between two values or texts. Owns comparing them by path and by line, within bounds.

import { h } from "../core/dom.js";
import { brief, visible } from "../core/format.js";

const MOST_LINES = 1_500;
const MOST_CHANGES = 200;
const AROUND = 3;

/** The differences of two JSON values by path; empty where they are equal. */
export function changes(before, after, path = "", found = []) {
  if (found.length >= MOST_CHANGES || Object.is(before, after)) return found;
  const [one, other] = [shape(before), shape(after)];
  if (one !== other || one === "leaf") found.push({ path: path || "/", before, after });
  else for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) changes(before[name], after[name], `${path}/${name}`, found);
  return found;
}

function shape(value) {
  return Array.isArray(value) ? "list" : value !== null && typeof value === "object" ? "object" : "leaf";
}

/** The differences of two values, as people read them. */
export function valueDiff(before, after) {
  const found = changes(before, after);
  if (found.length === 0) return h("p", { class: "dim" }, "Nothing is changed.");
  return h(
    "div",
    { class: "diff", role: "region", tabindex: "0", "aria-label": "Differences" },
    found.map((each) => [
      h("div", { class: "path" }, visible(each.path)),
      bothText(each) && /\n/.test(each.before + each.after) ? lines(each.before, each.after) : [each.before !== undefined && gone(brief(wrap(each.before), 2000)), each.after !== undefined && added(brief(wrap(each.after), 2000))],
    ]),
  );
}

function bothText({ before, after }) {
  return typeof before === "string" && typeof after === "string";
}

function wrap(value) {
  return typeof value === "string" ? JSON.stringify(value) : value;
}

const gone = (text) => h("div", { class: "gone" }, h("span", { class: "unseen" }, "removed: "), "− ", visible(text));
const added = (text) => h("div", { class: "new" }, h("span", { class: "unseen" }, "added: "), "+ ", visible(text));

/** The differences of two texts by line. */
export function textDiff(before, after) {
  return h("div", { class: "diff", role: "region", tabindex: "0", "aria-label": "Differences" }, lines(before, after));
}

function lines(before, after) {
  const [old, young] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < old.length && start < young.length && old[start] === young[start]) start += 1;
  let end = 0;
  while (end < old.length - start && end < young.length - start && old.at(-1 - end) === young.at(-1 - end)) end += 1;
  const middle = compare(old.slice(start, old.length - end), young.slice(start, young.length - end));
  const head = old.slice(Math.max(0, start - AROUND), start);
  const tail = end ? old.slice(old.length - end, old.length - end + AROUND) : [];
  return [head.map(same), middle, tail.map(same)];
}

const same = (text) => h("div", {}, "  ", visible(text));

// The longest common subsequence, by a table; texts for which that would be too large are shown whole.
function compare(old, young) {
  if (old.length > MOST_LINES || young.length > MOST_LINES) return [old.slice(0, MOST_LINES).map(gone), young.slice(0, MOST_LINES).map(added)];
  const width = young.length + 1;
  const table = new Uint16Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i--)
    for (let j = young.length - 1; j >= 0; j--)
      table[i * width + j] = old[i] === young[j] ? table[(i + 1) * width + j + 1] + 1 : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
  const shown = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < young.length) {
    if (i < old.length && j < young.length && old[i] === young[j]) shown.push(same(old[i++])), j++;
    else if (j >= young.length || (i < old.length && table[(i + 1) * width + j] >= table[i * width + j + 1])) shown.push(gone(old[i++]));
    else shown.push(added(young[j++]));
  }
  return shown;
}
