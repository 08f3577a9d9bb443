// The view of what the server does now: loaded models, running requests, and why each waits or was fast.
import {bytes, h, milliseconds, number, replace} from "./dom.mjs";
import {onNow} from "./live.mjs";

const REASONS = {
  cold: "Nothing that begins like this prompt was cached.",
  evicted: "Its beginning was cached, and was evicted to make room.",
  salt: "It was cached for another key.",
  layout: "It was cached for another layout of the caches.",
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

export function showNow(view) {
  const box = h("div", {});
  replace(view, h("h2", {}, "Now"), box);
  return onNow((now) => draw(box, now));
}

function draw(box, now) {
  const open = new Set([...box.querySelectorAll("details[open]")].map((one) => one.dataset.id));
  replace(box, modelsSection(now), requestsSection(now), recentSection(now, open));
}

function share(label, value, limit) {
  return h("div", {class: "share"}, h("span", {}, label), limit > 0 && h("meter", {min: 0, max: limit, value: Math.min(value, limit), "aria-label": label}),
    h("span", {class: "number"}, limit > 0 ? `${bytes(value)} of ${bytes(limit)}` : bytes(value)));
}

function modelsSection({models, memory_budget_bytes: budget}) {
  const total = models.reduce((sum, model) => sum + model.resident_bytes, 0);
  return h("section", {}, h("h3", {}, "Memory"),
    share("All models", total, budget),
    models.length === 0 && h("p", {class: "empty"}, "No model is loaded."),
    models.map((model) => h("article", {class: "card"}, h("h4", {}, model.name),
      share("Resident", model.resident_bytes, model.memory_bytes),
      model.prefix_bytes !== undefined && share("Caches", model.cache_bytes_used, model.cache_bytes),
      model.prefix_bytes !== undefined && share("Prefix snapshots", model.prefix_bytes, model.cache_bytes),
      h("p", {class: "figures"}, [
        `${model.architecture}, context ${number(model.context_length)} tokens`, model.steps !== undefined && `${model.running} running, ${model.waiting} waiting`,
        model.steps !== undefined && `${number(model.prefix_snapshots)} snapshots, ${number(model.prefix_evictions)} evicted`,
        model.steps !== undefined && `${number(model.steps)} steps`,
        `loaded in ${milliseconds(model.load_ms)}`].filter(Boolean).join(" · ")))));
}

const PHASES = {queued: "waiting for its model or a place", prefill: "prompt is computed", decode: "answer is generated"};

function requestsSection({requests, others}) {
  const count = others.running + others.waiting;
  return h("section", {}, h("h3", {}, `Requests in progress (${requests.length + count})`),
    requests.length + count === 0 && h("p", {class: "empty"}, "Nothing to do."),
    requests.map((request) => h("article", {class: "card"}, h("h4", {}, `${request.model} · ${PHASES[request.phase]}`), timeline(request),
      h("p", {class: "figures"}, facts(request)))),
    count > 0 && h("p", {}, `Other keys: ${others.running} running, ${others.waiting} waiting.`));
}

function facts(request) {
  return [request.path, request.key && `key ${request.key}`, request.phase ? `${milliseconds(request.elapsed_ms)} so far` : milliseconds(request.elapsed_ms),
    request.prompt_tokens !== undefined && `${number(request.cached_tokens ?? 0)} of ${number(request.prompt_tokens)} prompt tokens from cache`,
    request.output_tokens > 0 && `${number(request.output_tokens)} tokens`,
    request.tokens_per_second && `${request.tokens_per_second.toFixed(1)} tokens/s`].filter(Boolean).join(" · ");
}

// Queue, prefill and decode as one bar.
function timeline(request) {
  const queue = request.queue_ms ?? request.elapsed_ms;
  const prefill = request.queue_ms === undefined ? 0 : (request.first_token_ms ?? request.elapsed_ms) - queue;
  const decode = request.first_token_ms === undefined ? 0 : request.elapsed_ms - request.first_token_ms;
  const parts = [["queue", queue], ["prefill", prefill], ["decode", decode]].filter(([, time]) => time > 0);
  const label = parts.map(([name, time]) => `${name} ${milliseconds(time)}`).join(", ");
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "timeline");
  svg.setAttribute("viewBox", "0 0 100 4");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  let x = 0;
  for (const [name, time] of parts) {
    const width = 100 * time / Math.max(request.elapsed_ms, 0.001);
    const part = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    for (const [attribute, value] of Object.entries({x, y: 0, width, height: 4, class: name})) part.setAttribute(attribute, value);
    svg.append(part);
    x += width;
  }
  return h("div", {}, svg, h("p", {class: "figures legend"}, label));
}

function recentSection({recent}, open) {
  return h("section", {}, h("h3", {}, "Last requests"),
    recent.length === 0 && h("p", {class: "empty"}, "None yet."),
    recent.map((request) => h("details", {"data-id": request.id, open: open.has(request.id), class: request.error ? "failed" : ""},
      h("summary", {}, `${new Date(request.ended_at_ms).toLocaleTimeString()} ${request.model} ${request.path} · ${milliseconds(request.elapsed_ms)}`,
        request.error ? ` · ${request.error}` : ""),
      timeline(request), h("p", {class: "figures"}, facts(request)), h("p", {}, explainMiss(request)),
      request.draft_tokens ? h("p", {}, `${number(request.draft_tokens_accepted)} of ${number(request.draft_tokens)} draft tokens accepted.`) : null)));
}
