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

function addUsage(message, usage) {
  message.figures = {
    ...message.figures, promptTokens: usage.prompt_tokens, cachedTokens: usage.prompt_tokens_details?.cached_tokens ?? 0,
    tokens: usage.completion_tokens, reasoningTokens: usage.completion_tokens_details?.reasoning_tokens ?? 0,
  };
}

// Fills `message` (an assistant's message, the leaf of `conversation`), calling `changed` after each piece.
// Throws what the request throws; what has come by then stays.
export async function streamAnswer(conversation, message, settings, signal, changed) {
  const tools = toolsOf(settings.tools);
  const format = formatOf(settings.schema);
  const body = {
    model: conversation.model, messages: messagesFor(conversation, message.parent), stream: true,
    stream_options: {include_usage: true}, ...optionsOf(settings),
    ...(tools && {tools}), ...(format && {response_format: format}),
    ...(settings.think && {reasoning_effort: settings.think}),
  };
  const begin = performance.now();
  let first = null;
  message.figures = {};
  for await (const chunk of events("/v1/chat/completions", {method: "POST", body, signal})) {
    if (chunk.error) throw new Error(chunk.error.message ?? String(chunk.error));
    const choice = chunk.choices?.[0];
    const delta = choice?.delta ?? {};
    const reasoning = delta.reasoning_content ?? "";
    if (first === null && (delta.content || reasoning || delta.tool_calls)) {
      first = performance.now();
      message.figures.firstTokenMs = first - begin;
    }
    if (reasoning) message.reasoning = (message.reasoning ?? "") + reasoning;
    if (delta.content) message.content += delta.content;
    if (delta.tool_calls) addToolCalls(message, delta.tool_calls);
    if (choice?.finish_reason) message.finish = choice.finish_reason;
    if (chunk.usage) addUsage(message, chunk.usage);
    changed();
  }
  const {tokens} = message.figures;
  if (first !== null && tokens > 1) message.figures.tokensPerSecond = (tokens - 1) / ((performance.now() - first) / 1000);
  if (!message.finish) throw new Error("The answer ended early.");
}
