// One message as elements.
import {h, milliseconds, number} from "./dom.mjs";
import {formatted} from "./markdown.mjs";

const NAMES = {user: "You", assistant: "Model", tool: "Tool result"};

function figures(message) {
  const {promptTokens, cachedTokens, tokens, firstTokenMs, tokensPerSecond, reasoningTokens} = message.figures ?? {};
  const parts = [];
  if (promptTokens !== undefined) parts.push(`${number(cachedTokens)} of ${number(promptTokens)} prompt tokens from cache`);
  if (firstTokenMs !== undefined) parts.push(`first token after ${milliseconds(firstTokenMs)}`);
  if (tokens !== undefined) parts.push(`${number(tokens)} tokens${reasoningTokens ? ` (${number(reasoningTokens)} of reasoning)` : ""}`);
  if (tokensPerSecond !== undefined) parts.push(`${tokensPerSecond.toFixed(1)} tokens/s`);
  if (message.finish === "length") parts.push("cut off: the limit of tokens");
  return parts.length > 0 ? h("p", {class: "figures"}, parts.join(" · ")) : null;
}

function toolCall(call, answerCall) {
  const rows = [h("div", {class: "call-name"}, "Calls ", h("code", {}, call.function.name)),
                h("pre", {class: "plain", tabindex: 0}, call.function.arguments)];
  if (answerCall) {
    const result = h("textarea", {rows: 2, "aria-label": `Result of ${call.function.name}`, placeholder: "Result of the call"});
    rows.push(result, h("button", {type: "button", onclick: () => answerCall(call, result.value)}, "Send result"));
  }
  return h("div", {class: "call"}, rows);
}

// `actions`: {edit, regenerate, previous, next, position, count, answerCall}; functions that are missing are
// not offered, and answerCall is for `openCalls` only.
export function messageView(message, actions = {}, busy = false) {
  const body = h("div", {class: "text"});
  if (message.role === "assistant" && !busy) body.append(formatted(message.content));
  else body.append(h("pre", {class: "plain flow"}, message.content));
  const reasoning = message.reasoning
    ? h("details", {class: "reasoning", open: busy && !message.content},
        h("summary", {}, busy && !message.content ? "Reasoning…" : "Reasoning"), h("pre", {class: "plain flow"}, message.reasoning))
    : null;
  const {edit, regenerate, previous, next, position, count, answerCall, openCalls, remove} = actions;
  const buttons = h("div", {class: "actions"},
    count > 1 && h("span", {class: "branches"},
      h("button", {type: "button", "aria-label": "Previous branch", disabled: position === 1, onclick: previous}, "‹"),
      h("span", {}, `${position} / ${count}`),
      h("button", {type: "button", "aria-label": "Next branch", disabled: position === count, onclick: next}, "›")),
    edit && h("button", {type: "button", onclick: edit}, "Edit"),
    regenerate && h("button", {type: "button", onclick: regenerate}, "Regenerate"),
    h("button", {type: "button", onclick: () => navigator.clipboard.writeText(message.content)}, "Copy"),
    remove && h("button", {type: "button", onclick: remove}, "Remove"));
  return h("article", {class: `message ${message.role}`, "aria-label": NAMES[message.role], "aria-busy": busy ? "true" : null},
    h("h2", {}, NAMES[message.role] ?? message.role), reasoning, body, (message.toolCalls ?? []).map((call) => toolCall(call, openCalls?.includes(call) ? answerCall : null)),
    message.error && h("p", {class: "error", role: "alert"}, message.error), figures(message), busy ? null : buttons);
}
