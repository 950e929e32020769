// Keys of the keyboard. Owns who gets a key: the newest element that asked for it, unless somebody types.

const bound = new Map(); // key -> [{label, done}], the newest last

/** Bind keys while an element is there: `{a: ["approve", done]}`. Returns how to unbind them. */
export function bind(keys) {
  for (const [key, [label, done]] of Object.entries(keys)) bound.set(key, [...(bound.get(key) ?? []), { label, done }]);
  return () => {
    for (const [key, [, done]] of Object.entries(keys)) bound.set(key, bound.get(key).filter((each) => each.done !== done));
  };
}

/** The keys that work now, with what they do. */
export function bindings() {
  return [...bound].filter(([, each]) => each.length).map(([key, each]) => [key, each.at(-1).label]);
}

let prefix = "";
let forgotten = 0;

export function listen() {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (typing && event.key !== "Escape") return;
    if (document.querySelector("dialog[open]") && event.key !== "Escape") return;
    clearTimeout(forgotten);
    const pressed = bound.has(prefix + event.key) ? prefix + event.key : event.key;
    const found = bound.get(pressed)?.at(-1);
    prefix = !found && [...bound.keys()].some((key) => key.length > 1 && key.startsWith(`${event.key} `)) ? `${event.key} ` : "";
    if (prefix) forgotten = setTimeout(() => (prefix = ""), 1200);
    if (!found) return;
    event.preventDefault();
    found.done(event);
  });
}
