// Text of a model as formatted elements. Its HTML goes through the sanitizer; links open nothing but web
// pages, and no picture is fetched.
import {marked} from "./vendor/marked.mjs";
import DOMPurify from "./vendor/purify.mjs";
import hljs from "./vendor/highlight.mjs";
import {h} from "./dom.mjs";
import {isDrawable} from "./markdown_limits.mjs";

const ALLOWED_TAGS = ["a", "b", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "li",
  "ol", "p", "pre", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul", "span"];
const LIMIT = 200000;  // characters: longer texts stay plain, so that one line of a megabyte holds nobody up

marked.use({gfm: true, breaks: false, renderer: {html: ({text}) => escape(text), image: ({text}) => escape(text)}});

function escape(text) {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}

function sanitized(html) {
  return DOMPurify.sanitize(html, {
    ALLOWED_TAGS, ALLOWED_ATTR: ["href", "class", "start", "align"], ALLOWED_URI_REGEXP: /^https?:\/\//i,
    RETURN_DOM_FRAGMENT: true,
  });
}

function withCopyButton(pre) {
  const code = pre.querySelector("code");
  if (!code) return;
  const text = code.textContent;
  const language = /language-([\w+#-]+)/.exec(code.className)?.[1] ?? "";
  if (hljs.getLanguage(language) && text.length < 50000) {
    const highlighted = hljs.highlight(text, {language}).value;
    code.replaceChildren(sanitized(highlighted));
  }
  const copy = h("button", {type: "button", class: "copy"}, "Copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });
  const box = h("div", {class: "code"}, h("div", {class: "code-bar"}, h("span", {}, language), copy));
  pre.tabIndex = 0;
  pre.replaceWith(box);
  box.append(pre);
}

// An element for `text`, whatever it holds: what cannot be drawn is shown as it is, so that the rest of a
// conversation is.
export function formatted(text) {
  try {
    if (text.length <= LIMIT && isDrawable(text)) return drawn(text);
  } catch (error) {
    console.warn("a message is shown as plain text:", error.message);
  }
  return h("pre", {class: "plain", tabindex: 0}, text);
}

function drawn(text) {
  const fragment = sanitized(marked.parse(text));
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  for (const pre of fragment.querySelectorAll("pre")) withCopyButton(pre);
  for (const table of fragment.querySelectorAll("table")) {
    const box = h("div", {class: "wide", tabindex: 0, role: "region", "aria-label": "Table"});
    table.replaceWith(box);
    box.append(table);
  }
  return fragment;
}
