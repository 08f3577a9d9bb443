// One answer: streams /v1/chat/completions into a message of a conversation.
import {events} from "./api.mjs";
import {messagesFor} from "./conversation.mjs";
import {formatOf, optionsOf, toolsOf} from "./options.mjs";

function addToolCalls(message, deltas) {
  message.toolCalls ??= [];
  for (const delta of deltas) {
    const call = (message.toolCalls[delta.index ?? message.toolCalls.length] ??=
      {id: "", type: "function", function: {name: "", arguments: ""}});
    if (delta.id) call.id = delta.id;
    if (delta.function?.name) call.function.name = delta.function.name;
    call.function.arguments += delta.function?.arguments ?? "";
  }
}

// The server's own figures; the rate of a single token means nothing.
function addTimings(message, timings) {
  Object.assign(message.figures, {
    promptTokens: timings.cache_n + timings.prompt_n, cachedTokens: timings.cache_n, tokens: timings.predicted_n,
    tokensPerSecond: timings.predicted_n > 1 ? timings.predicted_per_second : undefined,
  });
}

function addUsage(message, usage) {
  Object.assign(message.figures, {
    promptTokens: usage.prompt_tokens, cachedTokens: usage.prompt_tokens_details?.cached_tokens ?? 0,
    tokens: usage.completion_tokens, reasoningTokens: usage.completion_tokens_details?.reasoning_tokens ?? 0,
  });
}

function bodyFor(conversation, message, thinks) {
  const {settings} = conversation;
  const tools = toolsOf(settings.tools);
  const format = formatOf(settings.schema);
  const messages = messagesFor(conversation, message.parent);
  // The server goes on with an answer that the messages end with.
  if (message.content) messages.push({role: "assistant", content: message.content});
  return {
    model: message.model, messages, stream: true,
    stream_options: {include_usage: true}, return_progress: true, timings_per_token: true, ...optionsOf(settings),
    ...(tools && {tools}), ...(format && {response_format: format}),
    ...(thinks && settings.think && {reasoning_effort: settings.think}),
  };
}

// Fills `message` (an assistant's message of `conversation`), from its content on if it has some, calling
// `changed` after each piece and `progress` with each prompt_progress. Throws what the request throws; what
// has come by then stays.
export async function streamAnswer(conversation, message, {thinks, signal, changed, progress}) {
  const body = bodyFor(conversation, message, thinks);
  const begin = performance.now();
  message.figures = {};
  delete message.finish;
  for await (const chunk of events("/v1/chat/completions", {method: "POST", body, signal})) {
    if (chunk.error) throw new Error(chunk.error.message ?? String(chunk.error));
    if (chunk.prompt_progress) progress(chunk.prompt_progress);
    const choice = chunk.choices?.[0];
    const delta = choice?.delta ?? {};
    const reasoning = delta.reasoning_content ?? "";
    if (delta.content || reasoning || delta.tool_calls) message.figures.firstTokenMs ??= performance.now() - begin;
    if (reasoning) message.reasoning = (message.reasoning ?? "") + reasoning;
    if (delta.content) message.content += delta.content;
    if (delta.tool_calls) addToolCalls(message, delta.tool_calls);
    if (choice?.finish_reason) message.finish = choice.finish_reason;
    if (chunk.timings) addTimings(message, chunk.timings);
    if (chunk.usage) addUsage(message, chunk.usage);
    changed();
  }
  if (!message.finish) throw new Error("The answer ended early.");
}
