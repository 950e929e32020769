// The way in, for somebody whom the service does not know. A token becomes a cookie that scripts cannot read.

import { send } from "../core/api.js";
import { element, h } from "../core/dom.js";

element("tw-login", (self, life) => {
  let problem = null;
  async function enter(event) {
    event.preventDefault();
    const field = self.querySelector("input");
    try {
      await send("POST", "/v1/login", { body: { token: field.value.trim() } });
      field.value = "";
      self.data.done();
    } catch (refused) {
      problem = refused;
      field.select();
      life.update();
    }
  }
  queueMicrotask(() => self.querySelector("input")?.focus());

  return () =>
    h(
      "form",
      { class: "login", onsubmit: enter },
      h("h1", {}, "Log in"),
      h("p", {}, "Paste a token. Make one with ", h("code", {}, "toolwright tokens create --db … --scope read"), ", or open the link that ", h("code", {}, "toolwright serve"), " printed."),
      h("label", { for: "token" }, "Token"),
      h("input", { id: "token", type: "password", class: "mono", autocomplete: "current-password", placeholder: "tw_…", required: true, "aria-describedby": problem ? "refused" : null, "aria-invalid": problem ? "true" : null }),
      problem && h("p", { id: "refused", class: "bad", role: "alert" }, problem.message),
      h("p", {}, h("button", { type: "submit", class: "main" }, "Log in")),
    );
});
