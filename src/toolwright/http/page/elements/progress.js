// Progress of a call or a run: a bar where its total is known, words where it is not.

import { h } from "../core/dom.js";
import { brief } from "../core/format.js";

export function progress(told) {
  if (!told || (told.current == null && !told.label)) return null;
  const { current, total, unit, label } = told;
  const known = current != null && total > 0;
  const words = [known ? `${number(current)} / ${number(total)}${unit ? ` ${unit}` : ""}` : current != null ? `${number(current)}${unit ? ` ${unit}` : ""}` : "", label].filter(Boolean).join(" · ");
  return h(
    "span",
    { class: "progress" },
    known && h("progress", { max: String(total), value: current, "aria-label": `${Math.floor((100 * current) / total)} percent` }),
    h("span", { class: "dim" }, brief(words, 60)),
  );
}

function number(value) {
  return Number(value).toLocaleString("en", { maximumFractionDigits: 1 });
}
