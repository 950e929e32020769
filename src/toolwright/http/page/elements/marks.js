// Small marks that every view uses: a status, an instant, a link to a thing, a state of a list, a line of facts.

import { element, h } from "../core/dom.js";
import { brief, exact, instant, look, relative, shortId } from "../core/format.js";
import { to } from "../core/routes.js";
import { Source } from "../core/store.js";

/** A status: a shape, a colour, and its word. */
export function status(value, { word = true, title } = {}) {
  const { shape, tone, word: said } = look(value);
  return h(
    "span",
    { class: `status ${tone}`, title: title ?? (word ? null : said) },
    h("span", { class: "shape", "aria-hidden": word ? "true" : null, role: word ? null : "img", "aria-label": word ? null : said }, shape),
    word && ` ${said}`,
  );
}

const seconds = new Source();
setInterval(() => seconds.tell(), 1000);

/** An instant: how long ago, with the instant itself on hover. */
export function when(value, props = {}) {
  return instant(value) === null ? h("span", { class: "dim" }, "–") : h("tw-time", { at: value, class: "time", ...props });
}

element("tw-time", (self, life) => {
  life.use(seconds);
  return ({ at }) => {
    const time = instant(at);
    if (time === null) return "–";
    if (self.shown !== time) {
      self.shown = time;
      self.title = exact(time);
    }
    return relative(time);
  };
});

/** A link to something by its id, in the typeface of data. */
export function ref(href, id, props = {}) {
  return h("a", { class: "ref", href, title: id, ...props }, shortId(id));
}

export function callLink(call) {
  return h("a", { class: "ref", href: to.call(call.session, call.call_id, call.scope), title: call.call_id }, brief(shortId(call.call_id), 32));
}

/** Text that a tool or a model wrote, on one line. */
export function said(value, most) {
  return h("span", { class: "said" }, brief(value, most));
}

/** What stands in place of a list that is not there: loading, failed, or empty. Null when there is something to show. */
export function absent(source, empty, { items = source.data?.items ?? source.data } = {}) {
  if (source.data === undefined) {
    if (source.problem) return trouble(source.problem);
    return h("p", { class: "notice dim", role: "status" }, "Loading…");
  }
  if (Array.isArray(items) && items.length === 0) return h("p", { class: "notice" }, empty);
  return null;
}

/** What went wrong, in words that say what to do. */
export function trouble(problem) {
  const words = {
    0: ["No answer", "The service does not answer. The page tries again by itself."],
    401: ["Not logged in", "Log in with a token to see this."],
    403: ["Not yours to see", problem.message],
    404: ["Gone", problem.message || "There is nothing at this address; it may have been pruned."],
    503: ["The store is away", problem.message],
  }[problem.status] ?? [problem.title || "This did not work", problem.message];
  return h("div", { class: "notice bad", role: "alert" }, h("strong", {}, words[0]), " ", words[1], problem.body?.rule && h("span", {}, " Rule: ", h("code", {}, problem.body.rule)));
}

/** Pairs of a word and a value, in a row. */
export function facts(...pairs) {
  const shown = pairs.filter((pair) => pair && pair[1] != null && pair[1] !== "" && pair[1] !== false);
  return h("dl", { class: "facts" }, shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** A button that says so when its work fails, and cannot be pressed twice while it works. */
export function action(label, done, props = {}) {
  return h("button", { type: "button", ...props, onclick: (event) => press(event.currentTarget, done, event) }, label);
}

async function press(button, done, event) {
  button.disabled = true;
  try {
    await done(event);
  } catch (problem) {
    toast(problem.message, "bad");
  } finally {
    button.disabled = false;
  }
}

/** Say something for a few seconds, to screen readers, too. */
export function toast(text, tone = "") {
  const shelf = document.querySelector(".toasts");
  if (!shelf) return;
  const note = document.createElement("p");
  note.className = `toast ${tone}`;
  note.textContent = text;
  shelf.append(note);
  setTimeout(() => note.remove(), 7000);
}

export async function copy(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement("textarea"); // without a secure context there is no clipboard API
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  toast("Copied");
}

/** The head of a view: where it is, and what can be done with it. */
export function heading(crumbs, ...actions) {
  return h(
    "header",
    { class: "heading" },
    h("h1", {}, crumbs.map((crumb, index) => [index > 0 && h("span", { class: "crumb", "aria-hidden": "true" }, " › "), crumb])),
    actions.length > 0 && h("div", { class: "actions" }, actions),
  );
}

export function more(source) {
  return source.data?.next && h("p", { class: "more" }, action(source.loading ? "Loading…" : "Show more", () => source.more()));
}
