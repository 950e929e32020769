// A form made from a JSON Schema. Owns the way from a schema to fields and back to a value; the service checks values.
//
// Schemas come from tools and from others: a reference is followed a few times at most, and whatever has no field of its
// own is edited as JSON. `given` is the value at first, `changed(value, problem)` is called at each change.

import { element, h } from "../core/dom.js";
import { brief, visible } from "../core/format.js";

const DEEPEST = 6;
const REFERENCES = 8;
let forms = 0;

element("tw-form", (self, life) => {
  const id = `form-${++forms}`;
  const texts = new Map(); // what is typed in fields whose text is no value yet
  const problems = new Map();
  let value = structuredClone(self.data.given);
  if (value === undefined) value = initial(self.data.schema, self.data.schema);
  let raw = false;
  const root = () => self.data.schema ?? {};

  function tell() {
    self.data.changed?.(value, problems.size ? [...problems.values()][0] : null);
    life.update();
  }

  function set(path, given) {
    if (path.length === 0) value = given;
    else {
      if (value === null || typeof value !== "object") value = {};
      const parent = path.slice(0, -1).reduce((at, name) => (at[name] ??= {}), value);
      if (given === undefined && !Array.isArray(parent)) delete parent[path.at(-1)];
      else parent[path.at(-1)] = given;
    }
    tell();
  }

  function field(name, schema, given, path, needed, depth) {
    const told = resolve(schema, root());
    const title = name === null ? null : visible(String(name));
    const key = path.join("/");
    const place = `${id}-${key}`;
    const problem = problems.get(key) ?? self.data.problems?.[`/${key}`];
    const kind = kindOf(told, given, depth);
    const described = told.description ? h("span", { class: "hint" }, visible(String(told.description)).slice(0, 500)) : null;
    const label = (inner, props = {}) =>
      h(
        "div",
        { class: "field", key: `field-${key}`, ...props },
        title !== null && h("label", { for: place }, title, needed && h("span", { class: "needed", title: "needed" }, " *"), h("span", { class: "dim type" }, ` ${typeName(told)}`)),
        inner,
        described,
        problem && h("span", { class: "bad", role: "alert" }, problem),
      );
    const common = { id: place, "aria-invalid": problem ? "true" : null, disabled: self.data.locked ?? false, "aria-label": title === null ? "Value" : null };
    if (kind === "object") return group(title, told, given ?? {}, path, depth, described);
    if (kind === "list") return list(title, told, given ?? [], path, depth, described);
    if (kind === "choice") {
      const options = told.enum ?? [told.const];
      const index = options.findIndex((each) => JSON.stringify(each) === JSON.stringify(given));
      return label(
        h(
          "select",
          { ...common, onchange: (event) => set(path, event.target.value === "" ? undefined : options[Number(event.target.value)]) },
          (!needed || index < 0) && h("option", { value: "", selected: index < 0 }, "–"),
          options.map((each, number) => h("option", { value: String(number), selected: number === index }, brief(each, 80))),
        ),
      );
    }
    if (kind === "boolean") {
      const index = given === true ? "true" : given === false ? "false" : "";
      if (needed || told.default !== undefined) return h("div", { class: "field check", key: `field-${key}` }, h("input", { ...common, type: "checkbox", checked: given === true, onchange: (event) => set(path, event.target.checked) }), h("label", { for: place }, title ?? "yes"), described);
      return label(h("select", { ...common, onchange: (event) => set(path, { true: true, false: false }[event.target.value]) }, ["", "true", "false"].map((each) => h("option", { value: each, selected: each === index }, each || "–"))));
    }
    if (kind === "number") {
      return label(
        h("input", {
          ...common,
          class: "mono",
          inputmode: "decimal",
          value: texts.get(key) ?? (given == null ? "" : String(given)),
          oninput: (event) => {
            const text = event.target.value.trim();
            const number = Number(text);
            const whole = told.type === "integer" || (Array.isArray(told.type) && told.type.includes("integer") && !told.type.includes("number"));
            texts.set(key, event.target.value);
            problems.delete(key);
            if (text === "") return set(path, undefined);
            if (!Number.isFinite(number) || (whole && !Number.isInteger(number))) {
              problems.set(key, whole ? "A whole number, please" : "A number, please");
              return tell();
            }
            if (Number.isInteger(number) && !Number.isSafeInteger(number)) {
              problems.set(key, "This number is too large for a form; edit it as JSON");
              return tell();
            }
            set(path, number);
          },
        }),
      );
    }
    if (kind === "text") {
      const long = String(given ?? "").length > 60 || /\n/.test(given ?? "") || told.format === "multiline";
      const props = { ...common, class: "mono", value: given ?? "", maxlength: told.maxLength, spellcheck: "false", oninput: (event) => set(path, event.target.value === "" && !needed ? undefined : event.target.value) };
      return label(long ? h("textarea", { ...props, rows: String(Math.min(14, 2 + String(given ?? "").split("\n").length)) }) : h("input", { ...props, type: told.format === "password" || told.writeOnly ? "password" : "text", autocomplete: "off" }));
    }
    return label(jsonField(key, given, path, common));
  }

  function jsonField(key, given, path, common) {
    return h("textarea", {
      ...common,
      class: "mono",
      rows: "4",
      spellcheck: "false",
      value: texts.get(key) ?? (given === undefined ? "" : JSON.stringify(given, null, 2)),
      oninput: (event) => {
        texts.set(key, event.target.value);
        problems.delete(key);
        if (event.target.value.trim() === "") return set(path, path.length ? undefined : {});
        try {
          set(path, JSON.parse(event.target.value));
        } catch (error) {
          problems.set(key, `This is not JSON: ${error.message}`);
          tell();
        }
      },
    });
  }

  function group(title, schema, given, path, depth, described) {
    const names = Object.keys(schema.properties ?? {});
    const others = Object.keys(given).filter((name) => !names.includes(name));
    const needed = new Set(schema.required ?? []);
    const fields = [...names, ...others].map((name) => field(name, schema.properties?.[name] ?? {}, given[name], [...path, name], needed.has(name), depth + 1));
    if (title === null) return h("div", { class: "fields" }, fields);
    return h("fieldset", { key: `field-${path.join("/")}` }, h("legend", {}, title), described, fields);
  }

  function list(title, schema, given, path, depth, described) {
    const inner = schema.items ?? {};
    return h(
      "fieldset",
      { key: `field-${path.join("/")}` },
      h("legend", {}, title ?? "entries", h("span", { class: "dim type" }, ` ${given.length}`)),
      described,
      given.map((each, index) =>
        h(
          "div",
          { class: "item", key: `${index}` },
          field(index, inner, each, [...path, index], true, depth + 1),
          h("button", { type: "button", "aria-label": `Remove entry ${index}`, disabled: self.data.locked ?? false, onclick: () => (texts.clear(), set(path, given.filter((_, place) => place !== index))) }, "✗"),
        ),
      ),
      h("button", { type: "button", disabled: self.data.locked ?? false, onclick: () => set(path, [...given, initial(inner, root()) ?? ""]) }, "Add an entry"),
    );
  }

  return () => [
    raw
      ? h("div", { class: "field", key: "raw" }, h("label", { for: `${id}-raw` }, "The whole value as JSON"), jsonField("raw", value, [], { id: `${id}-raw`, disabled: self.data.locked ?? false }), problems.has("raw") && h("span", { class: "bad", role: "alert" }, problems.get("raw")))
      : field(null, root(), value, [], true, 0),
    h("p", { class: "switch" }, h("button", { type: "button", class: "link", onclick: () => ((raw = !raw), texts.clear(), problems.clear(), tell()) }, raw ? "Edit in a form" : "Edit as JSON")),
  ];
});

/** A schema without references, and with the one form that is not null where there are two. */
export function resolve(schema, root, left = REFERENCES) {
  if (schema === true || schema == null || typeof schema !== "object") return {};
  if (typeof schema.$ref === "string" && left > 0) {
    const { $ref, ...rest } = schema;
    const target = $ref.startsWith("#/") ? $ref.slice(2).split("/").reduce((at, name) => at?.[name.replaceAll("~1", "/").replaceAll("~0", "~")], root) : undefined;
    return { ...resolve(target, root, left - 1), ...rest };
  }
  const forms = schema.anyOf ?? schema.oneOf;
  if (Array.isArray(forms)) {
    const real = forms.filter((each) => each?.type !== "null");
    if (real.length === 1 && left > 0) {
      const { anyOf, oneOf, ...rest } = schema;
      return { ...resolve(real[0], root, left - 1), ...rest, nullable: real.length < forms.length };
    }
    if (real.every((each) => each && "const" in each)) return { ...schema, enum: real.map((each) => each.const) };
  }
  if (Array.isArray(schema.allOf) && schema.allOf.length === 1 && left > 0) {
    const { allOf, ...rest } = schema;
    return { ...resolve(allOf[0], root, left - 1), ...rest };
  }
  return schema;
}

function kindOf(schema, given, depth) {
  if (Array.isArray(schema.enum) || "const" in schema) return "choice";
  const types = [schema.type ?? []].flat().filter((each) => each !== "null");
  const fits = { object: () => given === undefined || shape(given) === "object", array: () => given === undefined || Array.isArray(given), string: () => given == null || typeof given === "string", number: () => given == null || typeof given === "number", integer: () => given == null || typeof given === "number", boolean: () => given == null || typeof given === "boolean" };
  const type = types.length === 1 ? types[0] : types.length === 2 && types.includes("integer") && types.includes("number") ? "number" : null;
  if (!type || !fits[type]?.() || depth > DEEPEST) return "json";
  if (type === "object") return schema.properties && shape(given ?? {}) === "object" ? "object" : "json";
  if (type === "array") return schema.items && !Array.isArray(schema.items) ? "list" : "json";
  return { string: "text", integer: "number", number: "number", boolean: "boolean" }[type];
}

function shape(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value) ? "object" : typeof value;
}

/** A value to begin with: defaults, and empty objects and lists where they are needed. */
export function initial(schema, root, depth = 0) {
  const told = resolve(schema, root);
  if (told.default !== undefined) return structuredClone(told.default);
  if (told.type === "object" && told.properties && depth <= DEEPEST) {
    const made = {};
    for (const [name, inner] of Object.entries(told.properties)) {
      const begun = initial(inner, root, depth + 1);
      if (begun !== undefined && ((told.required ?? []).includes(name) || resolve(inner, root).default !== undefined)) made[name] = begun;
    }
    return made;
  }
  if (told.type === "object") return {};
  if (told.type === "array") return [];
  return depth === 0 ? {} : undefined;
}

export function typeName(schema) {
  if (schema.enum) return "one of";
  const type = [schema.type ?? "any"].flat().filter((each) => each !== "null").join(" or ");
  const bounds = [schema.minimum != null && `≥ ${schema.minimum}`, schema.maximum != null && `≤ ${schema.maximum}`, schema.format, schema.pattern && `/${brief(schema.pattern, 30)}/`].filter(Boolean).join(", ");
  return `${type}${schema.nullable ? " or null" : ""}${bounds ? ` (${bounds})` : ""}`;
}
