// Changes: a form says what it would do, asks, and shows what was done. Nothing is sent without the reader's yes.
import { visible } from "./visible.js";

const root = document.body.dataset.root;
const dialog = document.getElementById("confirm");

async function send(path, body, query = "") {
  const answer = await fetch(`${root}/api/v1${path}${query}`, {
    method: "POST",
    headers: { "content-type": "application/json", "X-Penstock": "1" },
    body: JSON.stringify(body),
  });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error([found.error?.message ?? answer.statusText, found.error?.hint].filter(Boolean).join(". "));
  return found;
}

function bodyOf(form) {
  const body = {};
  for (const field of form.elements) {
    if (!field.name || field.disabled) continue;
    if (field.type === "checkbox") { if (field.checked) body[field.name] = true; continue; }
    if (field.value === "" && !field.hasAttribute("data-empty")) continue;
    const kind = field.dataset.type;
    body[field.name] = kind === "number" ? Number(field.value) : kind === "boolean" ? field.value === "true" : field.value;
  }
  if (body.kind) {
    body.to = ["offset", "time"].includes(body.kind) ? `${body.kind}:${body.at ?? ""}` : body.kind;
    delete body.kind;
    delete body.at;
  }
  if (body.null_value) { body.value = null; delete body.null_value; }
  return body;
}

function rows(moves) {
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  for (const name of ["Partition", "Committed", "New", "Lag then"]) head.append(Object.assign(document.createElement("th"), { textContent: name }));
  const body = table.createTBody();
  for (const each of moves) {
    const row = body.insertRow();
    for (const value of [`${each.topic}-${each.partition}`, each.before ?? "-", each.after, each.lag]) row.insertCell().textContent = visible(value.toLocaleString());
  }
  return table;
}

// With a name to be typed, yes is possible only when it is there.
function agreed(title, details, name) {
  const yes = dialog.querySelector("button[value=yes]");
  yes.disabled = Boolean(name);
  if (name) {
    const field = Object.assign(document.createElement("input"), { className: "mono", autocomplete: "off", spellcheck: false });
    field.addEventListener("input", () => { yes.disabled = field.value !== name; });
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      if (!yes.disabled) yes.click();
    });
    const label = document.createElement("label");
    label.append(`Type ${visible(name)} to confirm`, field);
    details = [...details, label];
  }
  dialog.querySelector("h2").textContent = visible(title);
  dialog.querySelector(".details").replaceChildren(...details);
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }));
}

function say(form, text, bad = false) {
  const place = document.getElementById(form.dataset.says);
  place.textContent = visible(text);
  place.classList.toggle("bad", bad);
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.write) return;
  event.preventDefault();
  const button = event.submitter;
  say(form, "");
  if (button) button.disabled = true;
  try {
    const body = bodyOf(form);
    const details = [];
    if ("plan" in form.dataset) {
      const plan = await send(form.dataset.write, body, "?dry_run=true");
      if (plan.moves.length) details.push(rows(plan.moves));
      if (plan.note) details.push(Object.assign(document.createElement("p"), { textContent: visible(plan.note), className: "plan" }));
    }
    const name = form.dataset.typed;
    if (!(await agreed(form.dataset.confirm, details, name))) { say(form, "Nothing was changed."); return; }
    await send(form.dataset.write, name ? { ...body, confirm: name } : body);
    say(form, form.dataset.done);
    if (form.dataset.then) location.assign(form.dataset.then);
  } catch (error) {
    say(form, error.message, true);
  } finally {
    if (button) button.disabled = false;
  }
});
