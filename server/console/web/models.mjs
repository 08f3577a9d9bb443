// The models view: list, pull, create, details, memory before a load, load, unload, delete.
import {json, ndjson} from "./api.mjs";
import {bytes, h, milliseconds, notify, number, replace} from "./dom.mjs";
import {onNow} from "./live.mjs";
import {createBody} from "./modelfile.mjs";

export async function showModels(view) {
  const list = h("div", {class: "table-box"});
  const details = h("section", {"aria-live": "polite"});
  const body = h("div", {}, h("p", {class: "help read-only"}, "Your key uses models. Pulling, creating and deleting them takes a key of the role admin."),
    h("div", {class: "store-change"}, pullForm(() => draw(list, details)), createForm(() => draw(list, details))), list, details);
  replace(view, h("h2", {}, "Models"), body);
  const stop = onNow(({viewer}) => body.classList.toggle("reads-only", !viewer.admin));
  await draw(list, details);
  return stop;
}

async function draw(list, details) {
  const [{models}, {models: loaded}] = await Promise.all([json("/api/tags"), json("/api/ps")]);
  const inMemory = new Map(loaded.map((model) => [model.name, model]));
  if (models.length === 0) {
    replace(list, h("p", {class: "empty"}, "No models yet."));
    return;
  }
  const again = () => draw(list, details);
  replace(list, h("table", {},
    h("caption", {class: "hidden"}, "Models of this server"),
    h("thead", {}, h("tr", {}, ["Name", "Size", "Quantization", "Capabilities", "In memory", "Actions"].map((name) => h("th", {scope: "col"}, name)))),
    h("tbody", {}, models.map((model) => {
      const running = inMemory.get(model.name);
      return h("tr", {}, h("th", {scope: "row"}, model.name), h("td", {class: "number"}, bytes(model.size)),
        h("td", {}, model.details?.quantization_level ?? ""), h("td", {}, (model.capabilities ?? []).join(", ")),
        h("td", {class: "number"}, running ? bytes(running.size) : ""),
        h("td", {class: "actions"},
          button("Details", () => showDetails(details, model.name)),
          running ? button("Unload", () => keepAlive(model, 0).then(again)) : button("Load", () => load(model).then(again)),
          button("Delete", () => remove(model).then(again), "store-change")));
    }))));
}

function button(label, action, kind = null) {
  const element = h("button", {type: "button", class: kind}, label);
  element.addEventListener("click", async () => {
    element.disabled = true;
    try {
      await action();
    } catch (error) {
      notify(error.message, "error");
    } finally {
      element.disabled = false;
    }
  });
  return element;
}

const isEncoder = (model) => !(model.capabilities ?? ["completion"]).includes("completion");
const keepAlive = (model, time) => isEncoder(model)
  ? json("/api/embed", {method: "POST", body: {model: model.name, input: [], keep_alive: time}})
  : json("/api/generate", {method: "POST", body: {model: model.name, keep_alive: time}});

async function load(model) {
  const begin = performance.now();
  await keepAlive(model, "5m");
  notify(`${model.name} is loaded (${milliseconds(performance.now() - begin)}).`);
}

async function remove(model) {
  if (!confirm(`Delete ${model.name} (${bytes(model.size)})? This cannot be undone.`)) return;
  await json("/api/delete", {method: "DELETE", body: {model: model.name}});
  notify(`${model.name} is deleted.`);
}

async function showDetails(box, name) {
  const model = await json("/api/show", {method: "POST", body: {model: name, check: true}});
  const check = model.check ?? {};
  const rows = [
    ["Family", model.details?.family], ["Parameters", model.details?.parameter_size], ["Quantization", model.details?.quantization_level],
    ["Context", model.context_length && `${number(model.context_length)} tokens`], ["Capabilities", (model.capabilities ?? []).join(", ")],
    ["Loads here", check.loads === undefined ? "" : check.loads ? "yes" : `no: ${check.error}`],
    ["Memory it takes", check.memory && `${bytes(check.memory)} (at least ${bytes(check.memory_min)})`],
    ["Repairs", (model.repairs ?? []).join("; ")],
  ].filter(([, value]) => value);
  const text = (label, value) => value && h("details", {}, h("summary", {}, label), h("pre", {class: "plain", tabindex: 0}, value));
  replace(box, h("h3", {}, name), h("dl", {}, rows.map(([label, value]) => [h("dt", {}, label), h("dd", {}, value)])),
    text("Modelfile", model.modelfile), text("Template", model.template), text("System prompt", model.system),
    text("Parameters", model.parameters), text("License", model.license));
  box.scrollIntoView({block: "nearest"});
}

// Shows the progress of a transfer or a creation, which is a stream of {status, total, completed}.
async function follow(stream, box) {
  const bar = h("progress", {max: 1});
  const label = h("span", {});
  replace(box, label, bar);
  for await (const event of stream) {
    if (event.error) throw new Error(event.error);
    label.textContent = event.total ? `${event.status}: ${bytes(event.completed ?? 0)} of ${bytes(event.total)}` : event.status;
    if (event.total) bar.value = (event.completed ?? 0) / event.total;
    else bar.removeAttribute("value");
  }
  replace(box);
}

function transferForm(title, inputs, start, done) {
  const progress = h("p", {class: "row", role: "status"});
  const submit = h("button", {type: "submit"}, title);
  const stop = h("button", {type: "button", hidden: true}, "Stop");
  const form = h("form", {class: "row"}, inputs, submit, stop, progress);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const abort = new AbortController();
    stop.onclick = () => abort.abort();
    submit.disabled = true;
    stop.hidden = false;
    try {
      await follow(start(abort.signal), progress);
      notify(`${title}: done.`);
      await done();
    } catch (error) {
      replace(progress);
      if (error.name === "AbortError") notify("Stopped. What has come is kept, and the next try goes on from there.");
      else notify(error.message, "error");
    } finally {
      submit.disabled = false;
      stop.hidden = true;
    }
  });
  return form;
}

function pullForm(done) {
  const name = h("input", {"aria-label": "Name of the model to pull", placeholder: "model:tag", required: true});
  const insecure = h("input", {type: "checkbox", id: "pull-insecure"});
  return transferForm("Pull", [name, h("span", {class: "check"}, insecure, h("label", {for: "pull-insecure"}, "over HTTP"))],
    (signal) => ndjson("/api/pull", {method: "POST", body: {model: name.value.trim(), ...(insecure.checked && {insecure: true})}, signal}), done);
}

function createForm(done) {
  const name = h("input", {"aria-label": "Name of the new model", placeholder: "new-model", required: true});
  const modelfile = h("textarea", {rows: 5, "aria-label": "Modelfile", spellcheck: "false", required: true,
    placeholder: "FROM quire-demo\nSYSTEM You are brief.\nPARAMETER temperature 0.2"});
  return h("details", {}, h("summary", {}, "Create a model from a Modelfile"), transferForm("Create", [name, modelfile],
    (signal) => ndjson("/api/create", {method: "POST", body: createBody(name.value.trim(), modelfile.value), signal}), done));
}
