// The view of what the server does now: loaded models, running requests, and why each waits or was fast.
import {bytes, h, milliseconds, number, replace, stack, svg} from "./dom.mjs";
import {onNow} from "./live.mjs";

const REASONS = {
  cold: "Nothing that begins like this prompt was cached.",
  evicted: "Its beginning was cached, and was evicted to make room.",
  layout: "More of it is known than can be restored: layers with a window or a recurrent state keep it at restore points only.",
  off: "Prefix reuse is switched off.",
};

// Why not all of the prompt came from the cache.
export function explainMiss(request) {
  const {miss, prompt_tokens: prompt, cached_tokens: cached} = request;
  if (prompt === undefined) return "";
  if (!miss) return cached > 0 ? "All that can be reused was." : "";
  const diverged = /^diverged@(\d+)$/.exec(miss);
  if (diverged) return `The prompt differs from what is cached at token ${number(Number(diverged[1]))}.`;
  return REASONS[miss] ?? miss;
}

const TIME = /\b(\d{4}-\d\d?-\d\d?|\d\d?[:.]\d\d|\d\d?\/\d\d?\/\d{2,4}|(mon|tues?|wed(nes)?|thu(rs)?|fri|sat(ur)?|sun)(day)?|(jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]*)\b/i;
const ID = /[0-9a-f]{8,}|\d{6,}/i;

// The word in which two texts differ: the rest of the one that is being written, or the next.
const firstWord = (shared, text) => (/^\s/.test(text) ? "" : /\S*$/.exec(shared)[0]) + (/^\s*(\S*)/.exec(text)[1]);

// What kind of text it is that keeps a prompt from its cached prefix; null where that is not plain.
export function kindOfDivergence({shared, prompt, cached}) {
  const words = [prompt, cached].map((text) => firstWord(shared, text));
  if (words.every((word) => TIME.test(word))) {
    return "A date or a time: the template or the client puts it there. All that follows is computed again whenever it changes; it is cheaper at the prompt's end.";
  }
  if (words.every((word) => ID.test(word))) {
    return "An identifier that changes with each request: all that follows is computed again; it is cheaper at the prompt's end.";
  }
  return null;
}

// The texts around the token where a prompt left what was cached.
function divergence(request) {
  const {divergence: found} = request;
  if (!found) return null;
  const kind = kindOfDivergence(found);
  const line = (label, text) => [h("dt", {}, label), h("dd", {}, h("code", {class: "text"}, found.shared.slice(-60), h("mark", {}, text.slice(0, 100))))];
  return h("div", {}, h("dl", {class: "divergence"}, line("Prompt", found.prompt), line("Cached", found.cached)), kind && h("p", {}, kind));
}

export function showNow(view) {
  const box = h("div", {});
  replace(view, h("h2", {}, "Now"), box);
  const served = new Map();
  return onNow((now) => draw(box, now, served));
}

function draw(box, now, served) {
  const open = new Set([...box.querySelectorAll("details[open]")].map((one) => one.dataset.id));
  replace(box, modelsSection(now), sharesSection(now, served), requestsSection(now), recentSection(now, open));
}

function share(label, value, limit) {
  return h("div", {class: "share"}, h("span", {}, label), limit > 0 && h("meter", {min: 0, max: limit, value: Math.min(value, limit), "aria-label": label}),
    h("span", {class: "number"}, limit > 0 ? `${bytes(value)} of ${bytes(limit)}` : bytes(value)));
}

// Only an admin sees what models take now, which comes from everybody's requests; others see what was
// granted.
function modelsSection({models, loading, memory_budget_bytes: budget}) {
  const total = models.reduce((sum, model) => sum + (model.resident_bytes ?? model.memory_bytes), 0);
  return h("section", {}, h("h3", {}, "Memory"),
    share("All models", total, budget),
    models.length + loading.length === 0 && h("p", {class: "empty"}, "No model is loaded."),
    loading.map((model) => h("article", {class: "card"}, h("h4", {}, `${model.name} is loading`), h("div", {class: "row"},
      h("progress", {max: 1, value: model.fraction, "aria-label": `Load of ${model.name}`}), h("span", {class: "figures"}, `${Math.round(100 * model.fraction)} % ${model.stage}`)))),
    models.map((model) => h("article", {class: "card"}, h("h4", {}, model.name), memoryOf(model), model.engine && batchOf(model.engine),
      h("p", {class: "figures"}, [
        `${model.architecture}, context ${number(model.context_length)} tokens`, model.steps !== undefined && `${model.running} running, ${model.waiting} waiting`,
        model.steps !== undefined && `${number(model.prefix_snapshots)} snapshots, ${number(model.prefix_evictions)} evicted`,
        `loaded in ${milliseconds(model.load_ms)}`].filter(Boolean).join(" · ")))));
}

// What of a model's granted memory is taken, and by what.
function memoryOf(model) {
  if (model.resident_bytes === undefined) {
    return h("p", {class: "figures"}, `${bytes(model.memory_bytes)} granted; its caches may hold ${bytes(model.cache_bytes)}`);
  }
  const prefixes = model.prefix_bytes ?? 0;
  const running = Math.max((model.cache_bytes_used ?? 0) - prefixes, 0);
  const rest = Math.max(model.resident_bytes - model.weight_bytes - prefixes - running, 0);
  return [stack([["Weights", Math.min(model.weight_bytes, model.resident_bytes)], ["Prefixes", prefixes], ["Running requests", running], ["Rest", rest]], model.memory_bytes),
    h("p", {class: "figures"}, `${bytes(model.resident_bytes)} of ${bytes(model.memory_bytes)} granted; its caches may hold ${bytes(model.cache_bytes)}`)];
}

function batchOf(engine) {
  if (engine.steps === 0) return h("p", {class: "figures"}, "No step yet.");
  return h("p", {class: "figures"}, [`step ${number(engine.steps)}: ${number(engine.decoding)} ${engine.decoding === 1 ? "stream" : "streams"} decoding`,
    `${number(engine.prefilling)} ${engine.prefilling === 1 ? "prompt" : "prompts"} with ${number(engine.prefill_tokens)} tokens`, engine.draft_tokens > 0 && `${number(engine.draft_tokens)} draft tokens`,
    milliseconds(engine.step_ms), engine.building > 0 && `${number(engine.building)} prompts being built`].filter(Boolean).join(" · "));
}

const SHARE_WINDOW_MS = 5000;

// Who gets how much of the machine: by weight, and as it was in the last seconds. For who sees all shares.
function sharesSection({shares, viewer}, served) {
  if (shares.length === 0 || !viewer.admin) {
    served.clear();
    return null;
  }
  const time = performance.now();
  const tokens = shares.map(({key, weight, virtual_time: virtual}) => {
    const history = (served.get(key) ?? []).filter((point) => time - point.time < SHARE_WINDOW_MS && point.virtual <= virtual);
    history.push({time, virtual});
    served.set(key, history);
    return (virtual - history[0].virtual) * weight;
  });
  const all = tokens.reduce((sum, one) => sum + one, 0);
  const weights = shares.reduce((sum, {weight}) => sum + weight, 0);
  return h("section", {}, h("h3", {}, "Shares"), h("div", {class: "table-box"}, h("table", {},
    h("caption", {class: "hidden"}, "Shares of the keys that have requests"),
    h("thead", {}, h("tr", {}, ["Key", "Weight", "Running", "Waiting", "Due", "Last 5 s"].map((name) => h("th", {scope: "col"}, name)))),
    h("tbody", {}, shares.map((one, i) => h("tr", {}, h("th", {scope: "row"}, one.key || "no key"), h("td", {class: "number"}, number(one.weight)),
      h("td", {class: "number"}, number(one.running)), h("td", {class: "number"}, number(one.waiting)),
      h("td", {class: "number"}, `${Math.round(100 * one.weight / weights)} %`),
      h("td", {class: "number"}, all > 0 ? `${Math.round(100 * tokens[i] / all)} %` : "–")))))));
}

const PHASES = {queued: "waiting for its model or a place", prefill: "prompt is computed", decode: "answer is generated"};

const WAITS = {
  place: "waiting for a place in the batch or for memory", prefix: "waiting for another request that computes the same prefix",
  reader: "waiting for its client, which reads slowly",
};

function prefillOf({prefill}) {
  if (!prefill) return null;
  return h("div", {class: "row"}, h("progress", {max: prefill.prompt_tokens, value: prefill.computed_tokens, "aria-label": "Prompt tokens computed"}),
    h("span", {class: "figures"}, `${number(prefill.computed_tokens)} of ${number(prefill.prompt_tokens)} prompt tokens`,
      prefill.remaining_ms === undefined ? "" : `, about ${milliseconds(prefill.remaining_ms)} left`));
}

function requestsSection({requests, others}) {
  const count = others.running + others.waiting;
  return h("section", {}, h("h3", {}, `Requests in progress (${requests.length + count})`),
    requests.length + count === 0 && h("p", {class: "empty"}, "Nothing to do."),
    requests.map((request) => h("article", {class: "card"}, h("h4", {}, `${request.model} · ${WAITS[request.wait] ?? PHASES[request.phase]}`), timeline(request),
      prefillOf(request), h("p", {class: "figures"}, facts(request)), request.phase !== "queued" && [h("p", {}, explainMiss(request)), divergence(request)])),
    count > 0 && h("p", {}, `Other keys: ${others.running} running, ${others.waiting} waiting.`));
}

function facts(request) {
  return [request.path, request.key && `key ${request.key}`, request.phase ? `${milliseconds(request.elapsed_ms)} so far` : milliseconds(request.elapsed_ms),
    request.prompt_tokens !== undefined && `${number(request.cached_tokens ?? 0)} of ${number(request.prompt_tokens)} prompt tokens from cache`,
    request.output_tokens > 0 && `${number(request.output_tokens)} tokens`,
    request.tokens_per_second && `${request.tokens_per_second.toFixed(1)} tokens/s`].filter(Boolean).join(" · ");
}

// Queue, template, fetch of the cached prefix, prefill and decode as one bar.
function timeline(request) {
  const admitted = request.queue_ms ?? request.elapsed_ms;
  const template = Math.min(request.template_ms ?? 0, admitted);
  const fetch = Math.min(request.fetch_ms ?? 0, admitted - template);
  const prefill = request.queue_ms === undefined ? 0 : (request.first_token_ms ?? request.elapsed_ms) - admitted;
  const decode = request.first_token_ms === undefined ? 0 : request.elapsed_ms - request.first_token_ms;
  const parts = [["queue", admitted - template - fetch], ["template", template], ["fetch", fetch], ["prefill", prefill], ["decode", decode]]
    .filter(([, time]) => time > 0);
  const label = parts.map(([name, time]) => `${name} ${milliseconds(time)}`).join(", ");
  let x = 0;
  const rects = parts.map(([name, time]) => {
    const width = 100 * time / Math.max(request.elapsed_ms, 0.001);
    x += width;
    return svg("rect", {x: x - width, y: 0, width, height: 4, class: name});
  });
  return h("div", {}, svg("svg", {class: "timeline", viewBox: "0 0 100 4", preserveAspectRatio: "none", role: "img", "aria-label": label}, rects),
    h("p", {class: "figures legend"}, parts.map(([name, time]) => h("span", {class: `key key-${name}`}, `${name} ${milliseconds(time)}`))));
}

function recentSection({recent}, open) {
  return h("section", {}, h("h3", {}, "Last requests"),
    recent.length === 0 && h("p", {class: "empty"}, "None yet."),
    recent.map((request) => h("details", {"data-id": request.id, open: open.has(request.id), class: request.error ? "failed" : ""},
      h("summary", {}, `${new Date(request.ended_at_ms).toLocaleTimeString()} ${request.model} ${request.path} · ${milliseconds(request.elapsed_ms)}`,
        request.error ? ` · ${request.error}` : ""),
      timeline(request), h("p", {class: "figures"}, facts(request)), h("p", {}, explainMiss(request)), divergence(request),
      request.draft_tokens ? h("p", {}, `${number(request.draft_tokens_accepted)} of ${number(request.draft_tokens)} draft tokens accepted.`) : null)));
}
