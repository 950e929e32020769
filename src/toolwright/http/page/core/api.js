// Requests to the service. Owns addresses, errors and idempotency keys; nothing else of the page calls `fetch`.

/** The address of the service: the folder that the page came from, so that it may be mounted anywhere. */
export const BASE = new URL(".", document.baseURI).pathname.replace(/\/$/, "");

/** An answer that is no success, as RFC 9457 tells it. `status` is 0 where there was no answer. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The service answered with ${status}`);
    this.status = status;
    this.title = body.title ?? "";
    this.body = body;
  }
}

/** Build an address of the API: path parts are escaped, and parameters without a value left out. */
export function at(parts, query = {}) {
  const path = parts.map((part) => encodeURIComponent(part)).join("/");
  const words = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const search = words.length ? `?${new URLSearchParams(words)}` : "";
  return `/v1/${path}${search}`;
}

/** The path of a file keeps its slashes. */
export function fileAt(session, path) {
  const names = path.split("/").filter(Boolean).map(encodeURIComponent).join("/");
  return `/v1/sessions/${encodeURIComponent(session)}/files/${names}`;
}

let onForbidden = () => {};
/** Say who is told when the service does not know who is asking. */
export function whenForbidden(done) {
  onForbidden = done;
}

export async function send(method, path, { body, headers = {}, signal, raw = false, key } = {}) {
  const given = { Accept: "application/json", ...headers };
  const request = { method, headers: given, signal, credentials: "same-origin", cache: "no-store" };
  if (method !== "GET") {
    given["Idempotency-Key"] = key ?? newKey();
    given["X-Toolwright-Page"] = "1"; // a header that a form of another site cannot send
  }
  if (body !== undefined) {
    given["Content-Type"] ??= "application/json";
    request.body = given["Content-Type"] === "application/json" ? JSON.stringify(body) : body;
  }
  let answer;
  try {
    answer = await fetch(BASE + path, request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { title: "No answer", detail: "The service does not answer; it may be restarting." });
  }
  if (!answer.ok) {
    const problem = new Problem(answer.status, await problemOf(answer));
    if (answer.status === 401) onForbidden(problem);
    throw problem;
  }
  if (raw) return answer;
  if (answer.status === 204) return null;
  return answer.json();
}

async function problemOf(answer) {
  try {
    if (/json/.test(answer.headers.get("content-type") ?? "")) return await answer.json();
    return { title: answer.statusText, detail: (await answer.text()).slice(0, 500) };
  } catch {
    return { title: answer.statusText };
  }
}

export const get = (path, options) => send("GET", path, options);
export const post = (path, body = {}, options = {}) => send("POST", path, { ...options, body });

/** A key that makes a request that is sent twice one request. */
export function newKey() {
  return globalThis.crypto?.randomUUID?.() ?? Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
