// The panel beside a chat: system prompt, sampling options, tools and a schema of one conversation.
import {h} from "./dom.mjs";
import {iconButton} from "./icons.mjs";
import {OPTIONS, formatOf, toolsOf} from "./options.mjs";

function checkedText(label, help, settings, name, check, changed) {
  const problem = h("p", {class: "error", role: "alert"});
  const text = h("textarea", {rows: 4, id: `setting-${name}`, spellcheck: "false"});
  text.value = settings[name] ?? "";
  text.addEventListener("change", () => {
    problem.textContent = "";
    try {
      check(text.value);
    } catch (error) {
      problem.textContent = error.message;
    }
    settings[name] = text.value;
    changed();
  });
  return h("div", {class: "field"}, h("label", {for: `setting-${name}`}, label), text, h("p", {class: "help"}, help), problem);
}

function optionField({name, label, min, max, step, help}, settings, changed) {
  const input = h("input", {type: "number", id: `option-${name}`, min, max, step, placeholder: "model's default",
    "aria-describedby": `help-${name}`});
  input.value = settings[name] ?? "";
  input.addEventListener("change", () => {
    settings[name] = input.value;
    changed();
  });
  return h("div", {class: "field"}, h("label", {for: `option-${name}`}, label), input, h("p", {class: "help", id: `help-${name}`}, help));
}

// How many settings differ from the model's.
export function settingsCount({system, settings}) {
  const names = [...OPTIONS.map(({name}) => name), "tools", "schema"];
  return names.filter((name) => settings[name]?.trim()).length + (system.trim() ? 1 : 0);
}

// `changed()` after each change; `reset()` and `close()` are the panel's buttons.
export function settingsPanel(conversation, {changed, reset, close}) {
  const {settings} = conversation;
  const system = h("textarea", {rows: 4, id: "system", placeholder: "The model's own"});
  system.value = conversation.system;
  system.addEventListener("change", () => {
    conversation.system = system.value;
    changed();
  });
  const sampled = OPTIONS.some(({name}) => settings[name]);
  return h("section", {class: "panel", "aria-label": "Settings of this conversation", hidden: true},
    h("div", {class: "panel-head"}, h("h2", {}, "Settings"), iconButton("close", "Close settings", {onclick: close})),
    h("p", {class: "help"}, "For this conversation. What is empty is the model's own."),
    h("div", {class: "field"}, h("label", {for: "system"}, "System prompt"), system),
    h("details", {open: sampled}, h("summary", {}, "Sampling"), OPTIONS.map((option) => optionField(option, settings, changed))),
    h("details", {open: Boolean(settings.tools)}, h("summary", {}, "Tools"),
      checkedText("Tools as JSON", "An array of function definitions. The page shows calls; you give their results.", settings, "tools",
        toolsOf, changed)),
    h("details", {open: Boolean(settings.schema)}, h("summary", {}, "Answer format"),
      checkedText("JSON Schema", "The answer is constrained to this schema.", settings, "schema", formatOf, changed)),
    h("p", {class: "row"}, h("button", {type: "button", onclick: reset}, "Reset all")));
}
