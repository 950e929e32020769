// The files of a session: a list, a viewer, and what changed in a file while it was looked at.

import { at, BASE, fileAt, send } from "../core/api.js";
import { element, h } from "../core/dom.js";
import { bytes, visible } from "../core/format.js";
import { link } from "../core/routes.js";
import { resource } from "../core/store.js";
import { textDiff } from "./diff.js";
import { json } from "./json.js";
import { absent, action, facts, trouble, when } from "./marks.js";

const SHOWN = 256 * 1024; // bytes of a file that are read to be shown

element("tw-files", (self, life) => {
  const { session } = self.data;
  const files = life.use(resource(at(["sessions", session, "files"], { limit: 1000 })));
  const versions = new Map(); // path -> the texts that were seen, the newest last
  let shown = null;
  let loading = 0;

  async function load(path, info) {
    const turn = ++loading;
    shown = { path, tag: info?.hash ?? info?.updated_at };
    try {
      const big = (info?.size ?? 0) > SHOWN;
      const answer = await send("GET", fileAt(session, path), { raw: true, headers: { Accept: "*/*", ...(big ? { Range: `bytes=0-${SHOWN - 1}` } : {}) } });
      const type = (answer.headers.get("content-type") ?? "").split(";")[0];
      if (/^image\/(png|jpeg|gif|webp)$/.test(type)) {
        if (turn === loading) Object.assign(shown, { image: URL.createObjectURL(await answer.blob()) });
      } else {
        const text = await answer.text();
        if (turn !== loading) return;
        const seen = versions.get(path) ?? [];
        if (seen.at(-1)?.text !== text) seen.push({ text, at: Date.now() / 1000 });
        versions.set(path, seen.slice(-5));
        Object.assign(shown, { text, cut: big });
      }
    } catch (problem) {
      if (turn === loading) shown.problem = problem;
    }
    life.update();
  }

  life.ended(() => shown?.image && URL.revokeObjectURL(shown.image));

  return ({ path }) => {
    const items = (files.data?.items ?? []).filter((each) => !each.directory);
    const info = items.find((each) => each.path === path);
    if (path && files.data && (shown?.path !== path || shown.tag !== (info?.hash ?? info?.updated_at))) load(path, info);
    return absent(files, "No files in this session.", { items }) ?? h("div", { class: "split" }, h("ul", { class: "rows" }, items.map((each) => h("li", { key: each.path }, h("a", { class: `row${each.path === path ? " here" : ""}`, href: link(["sessions", session, "files"], { path: each.path }) }, h("span", { class: "mono" }, visible(each.path)), h("span", { class: "spring num dim" }, bytes(each.size)), when(each.updated_at))))), path && viewer(path, info, shown, versions.get(path) ?? [], session));
  };
});

function viewer(path, info, shown, seen, session) {
  return h(
    "section",
    { key: path, class: "viewer" },
    h("h2", { class: "mono" }, visible(path)),
    info && facts(["size", bytes(info.size)], ["changed", when(info.updated_at)], info.readonly && ["", "read only"], ["", action("Download", () => download(session, path), { class: "link" })]),
    shown?.problem && trouble(shown.problem),
    shown?.image && h("div", { class: "pictures" }, h("img", { src: shown.image, alt: path })),
    seen.length > 1 && h("details", { class: "fold", open: true }, h("summary", {}, "Changed while you look: the difference to the version before"), textDiff(seen.at(-2).text, seen.at(-1).text)),
    shown?.text !== undefined && h("div", { class: "block", tabindex: "0", role: "region", "aria-label": "Content of the file" }, parsed(path, shown.text) ?? h("pre", {}, visible(shown.text))),
    shown?.cut && h("p", { class: "dim" }, `The first ${bytes(SHOWN)} are shown.`),
  );
}

function parsed(path, text) {
  if (!/\.json$/.test(path)) return null;
  try {
    return json(JSON.parse(text), { depth: 2 });
  } catch {
    return null;
  }
}

async function download(session, path) {
  const anchor = document.createElement("a");
  anchor.href = BASE + fileAt(session, path);
  anchor.download = path.split("/").at(-1);
  anchor.click();
}
