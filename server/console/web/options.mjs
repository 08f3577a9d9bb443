// The options of a request that the page offers, with what they mean. An empty field leaves the model's own
// value.

export const OPTIONS = [
  {name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.1,
   help: "0 always takes the most likely token; higher values vary more."},
  {name: "top_p", label: "Top p", min: 0, max: 1, step: 0.05,
   help: "Only the most likely tokens whose probabilities sum to this are sampled."},
  {name: "top_k", label: "Top k", min: 0, max: 1000, step: 1, help: "Only this many of the most likely tokens are sampled; 0 is no limit."},
  {name: "min_p", label: "Min p", min: 0, max: 1, step: 0.01,
   help: "Tokens less likely than this part of the most likely token are not sampled."},
  {name: "repeat_penalty", label: "Repeat penalty", min: 0.5, max: 2, step: 0.05, help: "Above 1, recent tokens become less likely."},
  {name: "max_tokens", label: "Maximum tokens", min: 1, max: 1000000, step: 1, help: "The answer ends after this many tokens."},
  {name: "seed", label: "Seed", min: 0, max: 4294967295, step: 1, help: "The same seed and prompt give the same answer."},
];

// The numbers of `settings` (texts by name) as members of a request.
export function optionsOf(settings) {
  const request = {};
  for (const {name} of OPTIONS) {
    const text = settings[name];
    if (text !== undefined && text !== "" && Number.isFinite(Number(text))) request[name] = Number(text);
  }
  return request;
}

function parse(text, what) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${what} is not JSON: ${error.message}`);
  }
}

// Tools as a JSON array of OpenAI's definitions, or of bare functions.
export function toolsOf(text) {
  if (!text?.trim()) return undefined;
  const tools = parse(text, "The list of tools");
  if (!Array.isArray(tools)) throw new Error("The list of tools is not a JSON array.");
  return tools.map((tool) => (tool.type === "function" ? tool : {type: "function", function: tool}));
}

export function formatOf(text) {
  if (!text?.trim()) return undefined;
  return {type: "json_schema", json_schema: {name: "answer", schema: parse(text, "The schema")}};
}

// Whether an answer is what its schema asked for, as far as a page can tell: it parses, and has what is
// required.
export function schemaProblem(schemaText, answer) {
  const schema = parse(schemaText, "The schema");
  let value;
  try {
    value = JSON.parse(answer);
  } catch {
    return "The answer is not whole JSON.";
  }
  const missing = (schema.required ?? []).filter((name) => !(name in Object(value)));
  return missing.length > 0 ? `Missing: ${missing.join(", ")}` : "";
}
