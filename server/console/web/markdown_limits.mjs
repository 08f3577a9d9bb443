// Whether a text can be drawn as Markdown in a moment. Parsing takes time by the square of the marks of a
// paragraph, by the cells of tables, and stack by the depth of quotes and lists; what is beyond is shown as
// it is.
const DEPTH_MAX = 32;        // quotes and lists inside each other
const CELLS_MAX = 5000;      // of all tables
const MARKS_MAX = 1500;      // of one paragraph
const WORK_MAX = 4_000_000;  // the squares of the paragraphs' marks
const INDENT_MAX = 64;       // spaces before an item of a list

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const DELIMITER_ROW = /^[\s|:-]*-[\s|:-]*$/;
const PREFIX = /^(?:\s|>|[-*+](?=\s)|\d{1,9}[.)](?=\s))*/;

const count = (text, pattern) => text.match(pattern)?.length ?? 0;

export function isDrawable(text) {
  let fence = "", marks = 0, work = 0, columns = 0, cells = 0;
  for (const line of text.split("\n")) {
    const opened = FENCE.exec(line)?.[1];
    if (opened && (!fence || opened.startsWith(fence))) {
      fence = fence ? "" : opened;
      continue;
    }
    if (fence) continue;
    const prefix = PREFIX.exec(line)[0];
    if (count(prefix, />|[-*+]|\d+/g) > DEPTH_MAX) return false;
    if (/[-*+\d]/.test(prefix) && prefix.length > INDENT_MAX) return false;
    if (line.trim() === "") {
      work += marks * marks;
      marks = columns = 0;
      continue;
    }
    marks += count(line, /[*_~`[\]]/g);
    if (columns > 0) cells += columns;
    if (line.includes("|") && DELIMITER_ROW.test(line)) columns = count(line, /\|/g) + 1;
    if (marks > MARKS_MAX || cells > CELLS_MAX) return false;
  }
  return work + marks * marks <= WORK_MAX;
}
