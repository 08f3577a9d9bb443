// One message as elements.
import {isIncomplete} from "./conversation.mjs";
import {bytes, h, milliseconds, number, replace} from "./dom.mjs";
import {copyButton, icon, iconButton} from "./icons.mjs";
import {formatted} from "./markdown.mjs";
import {pictureView} from "./pictures.mjs";
import {shortName} from "./wait.mjs";

const LIVE_LIMIT = 20000;  // characters: a longer answer is formatted when it is whole

function figuresText(message, marked) {
  const {promptTokens, cachedTokens, tokens, firstTokenMs, tokensPerSecond, reasoningTokens} = message.figures ?? {};
  const parts = [];
  if (tokens !== undefined) parts.push(`${number(tokens)} tokens${reasoningTokens ? ` (${number(reasoningTokens)} of reasoning)` : ""}`);
  if (tokensPerSecond !== undefined) parts.push(`${tokensPerSecond.toFixed(1)} tokens/s`);
  if (firstTokenMs !== undefined) parts.push(`first token after ${milliseconds(firstTokenMs)}`);
  if (promptTokens !== undefined) parts.push(`${number(cachedTokens)} of ${number(promptTokens)} prompt tokens from cache`);
  if (message.finish === "length" && !marked) parts.push("cut off at the limit of tokens");
  return parts.join(" · ");
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

const attachedFile = ({name, content}) => h("details", {class: "file"},
  h("summary", {}, icon("file"), name, h("span", {class: "figures"}, bytes(content.length))), h("pre", {class: "plain", tabindex: 0}, content));

// What became of an answer that is not as it should be.
function mark(message, {regenerate, resume}) {
  const again = regenerate && h("button", {type: "button", onclick: regenerate}, "Try again");
  const more = resume && h("button", {type: "button", onclick: resume}, "Continue");
  if (message.error) {
    return h("div", {class: "mark failed", role: "alert"}, h("p", {}, h("strong", {}, "Failed. "), message.error),
      h("p", {class: "help"}, "The model does not see this answer."), h("p", {class: "row"}, more, again));
  }
  if (message.finish === "stopped") {
    return h("div", {class: "mark"}, h("p", {}, h("strong", {}, "Stopped. "), "The model does not see this answer."), h("p", {class: "row"}, more, again));
  }
  if (message.problem) return h("div", {class: "mark"}, h("p", {}, message.problem));
  if (message.finish === "length" && more) return h("div", {class: "mark"}, h("p", {}, "Cut off at the limit of tokens."), h("p", {class: "row"}, more));
  return null;
}

function branchButtons({previous, next, position, count}) {
  return h("span", {class: "branches"},
    iconButton("left", "Previous branch", {"aria-label": "Previous branch", disabled: position === 1, onclick: previous}),
    h("span", {}, `${position} / ${count}`),
    iconButton("right", "Next branch", {"aria-label": "Next branch", disabled: position === count, onclick: next}));
}

export function headingOf(message) {
  if (message.role === "assistant") return shortName(message.model || "Model");
  return message.role === "tool" ? "Tool result" : "You";
}

// `actions`: {edit, regenerate, resume, previous, next, position, count, answerCall}; functions that are
// missing are not offered, and answerCall is for `openCalls` only.
export function messageView(message, actions = {}) {
  const {edit, regenerate, count, answerCall, openCalls} = actions;
  const body = h("div", {class: "text"});
  if (message.role === "assistant") body.append(formatted(message.content));
  else if (message.content) body.append(h("pre", {class: "plain flow"}, message.content));
  const reasoning = message.reasoning
    ? h("details", {class: "reasoning", open: !message.content}, h("summary", {}, "Reasoning"), h("pre", {class: "plain flow"}, message.reasoning)) : null;
  const figures = figuresText(message, Boolean(actions.resume));
  const buttons = h("div", {class: "actions"},
    count > 1 && branchButtons(actions),
    h("span", {class: "tools"}, edit && iconButton("edit", "Edit", {onclick: edit}),
      regenerate && iconButton("again", "Regenerate", {onclick: regenerate}), copyButton(() => message.content)));
  const heading = headingOf(message);
  return h("article", {class: `message ${message.role} ${isIncomplete(message) ? "incomplete" : ""}`, "aria-label": heading},
    h("h3", {class: message.role === "user" ? "hidden" : "name"}, heading), (message.files ?? []).map(attachedFile), (message.images ?? []).map(pictureView), reasoning, body,
    (message.toolCalls ?? []).map((call) => toolCall(call, openCalls?.includes(call) ? answerCall : null)),
    mark(message, actions), figures && h("p", {class: "figures"}, figures), buttons);
}

class WaitLine {
  constructor() {
    this.text = h("p", {class: "figures"});
    this.bar = h("progress", {max: 1, "aria-label": "Progress"});
    this.element = h("div", {class: "wait"}, this.text, this.bar);
  }

  show({text, fraction}) {
    this.text.textContent = text;
    if (fraction === null) this.bar.removeAttribute("value");
    else this.bar.value = fraction;
  }
}

// The view of an answer that is on its way. refresh(wait) draws what has come by now; `wait` is {text,
// fraction}, and counts until something has.
export class PendingView {
  constructor(message) {
    this.message = message;
    this.text = h("div", {class: "text"});
    this.thought = h("pre", {class: "plain flow"});
    this.reasoning = h("details", {class: "reasoning", open: true, hidden: true}, h("summary", {}, "Reasoning"), this.thought);
    this.wait = new WaitLine();
    this.figures = h("p", {class: "figures"});
    this.element = h("article", {class: "message assistant", "aria-label": headingOf(message), "aria-busy": "true"},
      h("h3", {class: "name"}, headingOf(message)), this.reasoning, this.text, this.wait.element, this.figures);
  }

  refresh(wait) {
    const {content, reasoning = "", figures = {}} = this.message;
    if (reasoning) {
      this.reasoning.hidden = false;
      this.thought.textContent = reasoning;
      if (content && !this.answering) this.reasoning.open = false;
    }
    this.answering = Boolean(content);
    replace(this.text, content.length < LIVE_LIMIT ? formatted(content) : h("pre", {class: "plain flow"}, content));
    this.wait.element.hidden = Boolean(content || reasoning);
    this.wait.show(wait);
    const {tokens, tokensPerSecond: rate} = figures;
    this.figures.textContent = [tokens && `${number(tokens)} tokens`, rate && `${rate.toFixed(1)} tokens/s`].filter(Boolean).join(" · ");
  }
}
