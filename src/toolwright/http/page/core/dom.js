// Elements from plain objects. Owns building and updating the document; nothing else writes to it.
//
// `h()` describes an element, `draw()` makes the children of a parent fit a description: it keeps the elements that are
// already right, so that focus, selection and scroll positions stay. Text becomes text nodes only: there is no way from
// a string to markup in this page.

const PROPERTIES = new Set(["value", "checked", "selected", "disabled", "hidden", "open", "readOnly", "indeterminate"]);
const SAFE_LINK = /^(#|\/(?!\/)|https?:\/\/|blob:|data:image\/(png|jpeg|gif|webp);base64,)/i;

/** Describe an element: a tag, its properties, and its children. `false`, null and undefined children are left out. */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, children: children.flat(Infinity).filter((child) => child != null && child !== false) };
}

/** Make the children of `parent` those that are described. */
export function draw(parent, ...described) {
  const wanted = described.flat(Infinity).filter((child) => child != null && child !== false);
  const keyed = new Map();
  const loose = [];
  for (const node of parent.childNodes) {
    if (node.drawnKey !== undefined) keyed.set(node.drawnKey, node);
    else loose.push(node);
  }
  let next = 0;
  const nodes = wanted.map((child) => {
    if (typeof child !== "object") {
      const old = loose[next];
      if (old?.nodeType === Node.TEXT_NODE) {
        next += 1;
        const text = String(child);
        if (old.data !== text) old.data = text;
        return old;
      }
      return document.createTextNode(String(child));
    }
    const key = child.props.key;
    let node;
    if (key !== undefined) {
      node = keyed.get(key);
      keyed.delete(key);
      if (node && node.drawnTag !== child.tag) node = undefined;
    } else if (loose[next]?.drawnTag === child.tag) {
      node = loose[next];
      next += 1;
    }
    if (!node) {
      node = document.createElement(child.tag);
      node.drawnTag = child.tag;
      node.drawnKey = key;
    }
    update(node, child);
    return node;
  });
  const kept = new Set(nodes);
  for (const node of [...parent.childNodes]) if (!kept.has(node)) node.remove();
  nodes.forEach((node, index) => {
    if (parent.childNodes[index] !== node) parent.insertBefore(node, parent.childNodes[index] ?? null);
  });
}

function update(node, { tag, props, children }) {
  const before = node.drawnProps ?? {};
  node.drawnProps = props;
  for (const name of Object.keys(before)) if (!(name in props)) set(node, name, undefined, before[name]);
  for (const [name, value] of Object.entries(props)) if (name !== "key") set(node, name, value, before[name]);
  if (tag.includes("-")) node.update?.();
  else if (!props.opaque) draw(node, children);
}

function set(node, name, value, before) {
  if (name === "opaque") return;
  if (name.startsWith("on")) {
    // What a handler returns is dropped: `false` would cancel the event.
    node[name] = value ? (event) => void value(event) : null;
  } else if (name === "style") {
    for (const rule of Object.keys(before ?? {})) if (!(rule in (value ?? {}))) node.style.removeProperty(rule);
    for (const [rule, given] of Object.entries(value ?? {})) node.style.setProperty(rule, given);
  } else if (PROPERTIES.has(name)) {
    if (node[name] !== value) node[name] = value ?? (name === "value" ? "" : false);
  } else if (node.data instanceof Object && !/^(class|id|role|tabindex|title|slot)$|^(aria|data)-/.test(name)) {
    node.data[name] = value;
  } else if (value === before) {
    return;
  } else if (value == null || value === false) {
    node.removeAttribute(name);
  } else {
    if ((name === "href" || name === "src") && !SAFE_LINK.test(value)) return;
    node.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * Define an element of our own. `setup(element, life)` is called when it enters the document and returns a function from
 * its data to its content; `life` has what it needs while it is there:
 *
 *   life.update()                 draw again, once, at the next frame
 *   life.use(source, calm)        subscribe to something with `watch(listener) -> stop`; draw every `calm` ms at most
 *   life.on(target, type, done)   listen to events
 *   life.every(ms, done)          call repeatedly
 *   life.ended(done)              call when it leaves
 */
export function element(name, setup) {
  customElements.define(
    name,
    class extends HTMLElement {
      data = {};
      #content = null;
      #endings = [];
      #due = false;

      connectedCallback() {
        if (this.#content) return; // it was only moved
        const ended = (done) => this.#endings.push(done);
        const life = {
          update: () => this.update(),
          now: () => this.#draw(),
          ended,
          use: (source, calm = 0) => {
            let due = 0;
            const soon = () => (due ||= setTimeout(() => ((due = 0), this.update()), calm));
            ended(source.watch(calm ? soon : () => this.update()));
            return source;
          },
          on: (target, type, done, options) => {
            target.addEventListener(type, done, options);
            ended(() => target.removeEventListener(type, done, options));
          },
          every: (ms, done) => {
            const timer = setInterval(done, ms);
            ended(() => clearInterval(timer));
          },
        };
        this.#content = setup(this, life) ?? null;
        this.#draw();
      }

      disconnectedCallback() {
        queueMicrotask(() => {
          if (this.isConnected) return;
          for (const done of this.#endings.splice(0)) done();
          this.#content = null;
        });
      }

      update() {
        if (this.#due || !this.#content) return;
        this.#due = true;
        frame(() => {
          this.#due = false;
          this.#draw();
        });
      }

      #draw() {
        if (!this.#content) return;
        const content = this.#content(this.data);
        if (content !== undefined) draw(this, content);
      }
    },
  );
}

// A window in the background has no frames; its title and its counts still have to follow.
function frame(done) {
  if (document.hidden) setTimeout(done, 250);
  else requestAnimationFrame(done);
}
