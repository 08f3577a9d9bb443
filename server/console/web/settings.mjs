// The panel beside a chat: system prompt, sampling options, reasoning, tools and a schema.
import {h} from "./dom.mjs";
import {OPTIONS, formatOf, toolsOf} from "./options.mjs";

const EFFORTS = [["", "model's default"], ["none", "off"], ["low", "low"], ["medium", "medium"], ["high", "high"]];

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

export function settingsPanel(conversation, settings, changed) {
  const system = h("textarea", {rows: 3, id: "system"});
  system.value = conversation.system;
  system.addEventListener("change", () => {
    conversation.system = system.value;
    changed();
  });
  const think = h("select", {id: "think"}, EFFORTS.map(([value, label]) => h("option", {value}, label)));
  think.value = settings.think ?? "";
  think.addEventListener("change", () => {
    settings.think = think.value;
    changed();
  });
  return h("aside", {class: "panel", "aria-label": "Settings of the chat"},
    h("div", {class: "field"}, h("label", {for: "system"}, "System prompt"), system),
    h("div", {class: "field"}, h("label", {for: "think"}, "Reasoning"), think),
    h("details", {}, h("summary", {}, "Sampling"), OPTIONS.map((option) => optionField(option, settings, changed))),
    h("details", {open: Boolean(settings.tools)}, h("summary", {}, "Tools"),
      checkedText("Tools as JSON", "An array of function definitions. The page shows calls; you give their results.", settings, "tools",
        toolsOf, changed)),
    h("details", {open: Boolean(settings.schema)}, h("summary", {}, "Answer format"),
      checkedText("JSON Schema", "The answer is constrained to this schema.", settings, "schema", formatOf, changed)));
}
