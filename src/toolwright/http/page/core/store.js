// What the service said, as plain objects. Owns one copy of each resource that a view looks at, and keeps it fresh.
//
// A resource is named by its address. It is read when the first view looks at it, and again when an event says that it
// changed: at most one request at a time, and none more often than PAUSE. What nobody looks at is forgotten in order of
// age, so that a page that is open for weeks does not grow.

import { get } from "./api.js";

const PAUSE = 700; // milliseconds between two readings of the same resource
const FRESH = 2_000; // milliseconds for which a reading is good for another view
const KEPT = 40; // resources that nobody looks at

class Source {
  listeners = new Set();

  watch(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  tell() {
    for (const listener of this.listeners) listener();
  }
}

class Resource extends Source {
  data = undefined;
  problem = null;
  loading = false;
  #path;
  #read = 0;
  #again = false;
  #timer = 0;
  #pages = 1;

  constructor(path) {
    super();
    this.#path = path;
  }

  watch(listener) {
    const stop = super.watch(listener);
    // A view that is opened reads what is not quite new, also where events keep it fresh: they may be away.
    const onTheWay = this.loading || this.#timer;
    if (!onTheWay && (this.data === undefined || this.#again || Date.now() - this.#read > FRESH)) this.refresh();
    return () => {
      stop();
      forget();
    };
  }

  /** Read again, soon. */
  refresh() {
    this.#again = true;
    if (this.loading || this.#timer || this.listeners.size === 0) return;
    const pause = Math.max(0, this.#read + PAUSE - Date.now());
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      this.#load();
    }, pause);
  }

  /** Read one page more of a list. */
  more() {
    this.#pages += 1;
    this.refresh();
  }

  /** Change what is known here, where an event says all that changed. */
  apply(data) {
    this.data = data;
    this.tell();
  }

  async #load() {
    this.#again = false;
    this.loading = true;
    this.#read = Date.now();
    try {
      this.data = await this.#pagesOf();
      this.problem = null;
    } catch (error) {
      this.problem = error;
      if (error.status === 0) this.#again = true; // read again when the service is back
    }
    this.loading = false;
    this.tell();
    if (this.#again && this.problem?.status !== 0) this.refresh();
  }

  async #pagesOf() {
    const first = await get(this.#path);
    if (!Array.isArray(first?.items)) return first;
    const items = [...first.items];
    let cursor = first.next ?? null;
    for (let page = 1; page < this.#pages && cursor; page++) {
      const next = await get(`${this.#path}${this.#path.includes("?") ? "&" : "?"}cursor=${encodeURIComponent(cursor)}`);
      items.push(...next.items);
      cursor = next.next ?? null;
    }
    return { ...first, items, next: cursor };
  }
}

const resources = new Map();

/** The resource at an address; the same object for everybody who asks. */
export function resource(path) {
  let found = resources.get(path);
  if (found) resources.delete(path);
  else found = new Resource(path);
  resources.set(path, found); // the newest last
  return found;
}

function forget() {
  let idle = [...resources.values()].filter((each) => each.listeners.size === 0).length;
  for (const [path, each] of resources) {
    if (idle <= KEPT) return;
    if (each.listeners.size === 0) {
      resources.delete(path);
      idle -= 1;
    }
  }
}

/** Read again everything that matches; what nobody looks at is read when somebody does. */
export function refresh(matches = () => true) {
  for (const [path, each] of resources) if (matches(path)) each.refresh();
}

/** How many resources are kept, for tests of memory. */
export function size() {
  return resources.size;
}

export { Source };
