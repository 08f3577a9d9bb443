// Reads a Modelfile into the body of /api/create. Quotes close at the end of a line, as for "quire create".

// The value that begins at `at`, and where the next line begins.
function readValue(text, at, line) {
  const quote = text.startsWith('"""', at) ? '"""' : text[at] === '"' ? '"' : "";
  if (!quote) {
    const end = text.indexOf("\n", at) < 0 ? text.length : text.indexOf("\n", at);
    return {value: text.slice(at, end).trim(), next: end + 1};
  }
  const begin = at + quote.length;
  for (let from = begin; ;) {
    const close = text.indexOf(quote, from);
    if (close < 0) throw new Error(`line ${line}: missing closing ${quote}`);
    const rest = /^("*)[ \t]*(\n|$)/.exec(text.slice(close + quote.length));
    if (rest) return {value: text.slice(begin, close + rest[1].length), next: close + quote.length + rest[0].length};
    from = close + 1;
  }
}

// What it asks for that has no member of /api/create, such as files of this machine, is refused by name.
export function createBody(model, modelfile) {
  const text = modelfile.replaceAll("\r\n", "\n");
  const body = {model};
  for (let at = 0; at < text.length;) {
    const line = text.slice(0, at).split("\n").length;
    const head = /^[ \t]*(?:#[^\n]*)?(?:\n|$)/.exec(text.slice(at));
    if (head) {
      at += Math.max(head[0].length, 1);
      continue;
    }
    const [before, name] = /^[ \t]*(\S+)[ \t]*/.exec(text.slice(at));
    at += before.length;
    const command = name.toUpperCase();
    let key = "";
    if (command === "PARAMETER" || command === "MESSAGE") {
      const word = /^(\S*)[ \t]*/.exec(text.slice(at));
      key = word[1].toLowerCase();
      at += word[0].length;
    }
    const {value, next} = readValue(text, at, line);
    at = next;
    if (value === "") throw new Error(`line ${line}: ${name} has no value`);
    addCommand(body, command, key, value, line);
  }
  if (!body.from) throw new Error("no FROM line");
  return body;
}

function addCommand(body, command, key, value, line) {
  switch (command) {
    case "FROM":
      if (body.from) throw new Error(`line ${line}: one FROM is possible here; use "quire create" for several files`);
      body.from = value;
      break;
    case "SYSTEM": body.system = value; break;
    case "TEMPLATE": body.template = value; break;
    case "RENDERER": body.renderer = value; break;
    case "PARSER": body.parser = value; break;
    case "REQUIRES": body.requires = value; break;
    case "LICENSE": (body.license ??= []).push(value); break;
    case "MESSAGE": (body.messages ??= []).push({role: key, content: value}); break;
    case "PARAMETER": {
      const parameters = (body.parameters ??= {});
      if (key === "stop") (parameters.stop ??= []).push(value);
      else parameters[key] = typed(value);
      break;
    }
    default: throw new Error(`line ${line}: ${command} is not possible here; use "quire create"`);
  }
}

function typed(value) {
  if (value === "true" || value === "false") return value === "true";
  return Number.isNaN(Number(value)) ? value : Number(value);
}
