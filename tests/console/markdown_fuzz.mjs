// Texts made of the marks of Markdown: each is drawn in a moment or shown as it is, and none throws.
// usage: markdown_fuzz.mjs WEB [SEED]     WEB: the folder of the console's modules
import assert from "node:assert/strict";
import path from "node:path";
import {pathToFileURL} from "node:url";

const web = (name) => import(pathToFileURL(path.resolve(process.argv[2], name)));
const {marked} = await web("vendor/marked.mjs");
const {isDrawable} = await web("markdown_limits.mjs");
marked.use({gfm: true, breaks: false});

let state = BigInt(process.argv[3] ?? 1);
function below(limit) {
  state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
  return Number((state >> 33n) % BigInt(limit));
}
const MARKS = ["*", "_", "**", "~~", "`", "```", "[", "](", ")", "|", "|-", "-", "- ", "> ", ">", "1. ", "# ", "\n", "\n\n", "  ", "    ",
  "a", "word ", "<", "&", "http://", "![", "\\", "===", "---", ":", "\t"];
const HEAVY = 1500;  // ms of CPU for 12 kB; a text that is drawn takes a tenth

function render(text) {
  const begin = process.cpuUsage();
  const html = marked.parse(text);
  const used = process.cpuUsage(begin);
  assert.ok((used.user + used.system) / 1000 < HEAVY, `takes long: ${JSON.stringify(text.slice(0, 200))}`);
  assert.ok(html.length < 100 * text.length + 1000, `swells: ${JSON.stringify(text.slice(0, 200))}`);
}

const known = [">".repeat(2000), "- ".repeat(2000) + "a", "1. ".repeat(1500) + "a", "_a".repeat(6000), "*a ".repeat(4000), "[".repeat(12000),
  "|a".repeat(100) + "|\n" + "|-".repeat(100) + "|\n" + "|\n".repeat(5000), Array.from({length: 200}, (_, i) => " ".repeat(i * 2) + "- a").join("\n")];
let drawn = 0;
for (const text of known) {
  if (!isDrawable(text)) continue;
  render(text);
  ++drawn;
}
for (let round = 0; round < 400; ++round) {
  const pieces = Array.from({length: 1 + below(4)}, () => MARKS[below(MARKS.length)].repeat(1 + below(3)));
  let text = "";
  while (text.length < 12000) text += below(20) === 0 ? MARKS[below(MARKS.length)] : pieces[below(pieces.length)];
  if (!isDrawable(text)) continue;
  render(text);
  ++drawn;
}

// What people write is drawn.
const answer = "# Title\n\nSome *text* with `code` and a [link](https://example.org).\n\n" +
  "```python\ndef __init__(self, *args, **kwargs):\n    self._a = args[0]\n```\n\n- one\n  - two\n    1. three\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n";
assert.ok(isDrawable(answer.repeat(300)));
assert.ok(isDrawable("> quoted\n> > twice\n\n" + "a_b_c ".repeat(200)));
assert.ok(!isDrawable(">".repeat(2000)));
console.log(`${drawn} texts drawn`);
assert.ok(drawn > 100);
