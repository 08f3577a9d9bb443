// Requests to the server that this page came from. The API key stays in this tab's session storage.

const KEY = "quire.key";
let askForKey = async () => null;

// `ask(reason)` resolves with a key, or null.
export function onKeyNeeded(ask) { askForKey = ask; }

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function fields(more) {
  const key = sessionStorage.getItem(KEY);
  return key ? {...more, Authorization: `Bearer ${key}`} : more;
}

async function messageOf(response) {
  const text = await response.text();
  try {
    const {error} = JSON.parse(text);
    return typeof error === "string" ? error : error.message;
  } catch {
    return text || `HTTP status ${response.status}`;
  }
}

// The response, whatever its status is not. Asks for a key once where one is required.
export async function request(path, {method = "GET", body, accept, signal} = {}) {
  for (;;) {
    let response;
    try {
      response = await fetch(path, {
        method, signal, cache: "no-store", credentials: "omit",
        headers: fields({...(accept && {Accept: accept}), ...(body !== undefined && {"Content-Type": "application/json"})}),
        body: body === undefined ? undefined : JSON.stringify(body),
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, "The server does not answer.");
    }
    if (response.ok) return response;
    const message = await messageOf(response);
    if (response.status !== 401) throw new ApiError(response.status, message);
    const key = await askForKey(sessionStorage.getItem(KEY) ? "The server did not accept this key." : "");
    if (!key) throw new ApiError(401, message);
    sessionStorage.setItem(KEY, key);
  }
}

export async function json(path, options) {
  const response = await request(path, options);
  const text = await response.text();
  return text ? JSON.parse(text) : {};
}

async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const {done, value} = await reader.read();
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      yield* parts;
    }
    if (rest) yield rest;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The connection to the server was lost.");
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Objects of a stream of lines (Ollama's transfers).
export async function* ndjson(path, options) {
  for await (const line of lines(await request(path, options))) {
    if (line.trim()) yield JSON.parse(line);
  }
}

// Objects of server-sent events; "[DONE]" ends them.
export async function* events(path, options = {}) {
  for await (const line of lines(await request(path, {...options, accept: "text/event-stream"}))) {
    if (!line.startsWith("data:")) continue;
    const data = line.slice(5).trim();
    if (data === "[DONE]") return;
    yield JSON.parse(data);
  }
}
