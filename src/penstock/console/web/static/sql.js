// The page of SQL: statements with completion; results as tables, and as charts where they have numbers.
import { visible } from "./visible.js";

const root = document.body.dataset.root;
const writes = document.body.dataset.writes === "true";
const field = document.getElementById("sql");
const list = document.getElementById("words");
const results = document.getElementById("results");
const state = document.getElementById("sql-state");
let words = [];
let chosen = -1;
let asked = 0;
let loading = null;

let sortTables = () => {};
export function begin(shared) { sortTables = shared.sortTables; }
export function update() {}

async function read(path, options) {
  const answer = await fetch(`${root}/api/v1${path}`, options);
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) {
    const said = [found.error?.message ?? answer.statusText, found.error?.hint].filter(Boolean).join(" ");
    throw Object.assign(new Error(said), { line: found.error?.line, column: found.error?.column });
  }
  return found;
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.map((each) => (typeof each === "string" ? visible(each) : each)));
  return made;
}

// Completion

async function complete() {
  const number = ++asked;
  const at = field.selectionStart;
  const from = Math.max(0, at - 2000); // the longest text of an address is limited
  let found = [];
  try {
    found = await read(`/sql/complete?text=${encodeURIComponent(field.value.slice(from, at + 500))}&at=${at - from}`);
  } catch { /* without completion one can type, too */ }
  if (number !== asked) return;
  words = found.slice(0, 12);
  chosen = words.length ? 0 : -1;
  show();
}

function show() {
  list.replaceChildren(...words.map((each, n) => element("li", { role: "option", id: `word-${n}`, "aria-selected": String(n === chosen), "data-n": n },
    each.word, element("span", { class: "dim" }, each.kind))));
  list.hidden = !words.length;
  field.setAttribute("aria-expanded", String(words.length > 0));
  if (chosen >= 0) field.setAttribute("aria-activedescendant", `word-${chosen}`);
  else field.removeAttribute("aria-activedescendant");
}

function close() {
  asked++;
  words = [];
  chosen = -1;
  show();
}

function take(n) {
  const { word, replaces } = words[n];
  const at = field.selectionStart;
  field.setRangeText(word, at - replaces, at, "end");
  close();
  field.focus();
}

// History: what was run in this browser, the newest last; Ctrl with the arrows goes through it.

const KEPT = 50;
// Of a setting whose value nobody may read: such a statement is not kept.
const SECRET = /(password|passwd|passphrase|secret|credential|token|authorization|cookie|jaas|user.info|(api|access|account|private|shared)[._-]?key)[\w.-]*["'`]?\s*=\s*'/i;
let at = -1; // the place in the history; -1: what is typed now
let typed = "";

function past() {
  try { return JSON.parse(localStorage.getItem("penstock-sql")) ?? []; } catch { return []; }
}

function remember(text) {
  at = -1;
  if (SECRET.test(text) || /:\/\/[^/\s]*:[^/\s]*@/.test(text)) return;
  const kept = [...past().filter((each) => each !== text), text].slice(-KEPT);
  try { localStorage.setItem("penstock-sql", JSON.stringify(kept)); } catch { /* nothing can be kept */ }
}

function go(step) {
  const kept = past();
  const next = at < 0 ? (step < 0 ? kept.length - 1 : -1) : at + step;
  if (!kept.length || (next < 0 && step < 0) || (at < 0 && step > 0)) return;
  if (at < 0) typed = field.value;
  at = next < kept.length ? next : -1;
  field.value = at < 0 ? typed : kept[at];
}

// The line of a mistake with a caret below it, and the cursor there.
function place(text, line, column) {
  const lines = text.split("\n");
  const shown = lines[line - 1];
  if (shown === undefined) return [];
  const before = [...shown].slice(0, column - 1).join(""); // columns count characters, not halves of them
  const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0) + before.length;
  field.focus();
  field.setSelectionRange(start, start);
  return [element("pre", { class: "scroll caret", tabindex: "0" }, `${shown}\n${before.replace(/[^\t]/gu, " ")}^`)];
}

field.addEventListener("keydown", (event) => {
  if (event.ctrlKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
    event.preventDefault();
    close();
    go(event.key === "ArrowUp" ? -1 : 1);
    return;
  }
  if ((event.ctrlKey || event.metaKey) && event.key === "Enter") { event.preventDefault(); run(); return; }
  if (event.ctrlKey && event.key === " ") { event.preventDefault(); complete(); return; }
  if (!words.length) return;
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) { event.preventDefault(); chosen = (chosen + step + words.length) % words.length; show(); }
  else if (event.key === "Tab" || event.key === "Enter") { event.preventDefault(); take(chosen); }
  else if (event.key === "Escape") { event.preventDefault(); close(); }
});
field.addEventListener("input", () => (/\w$/.test(field.value.slice(0, field.selectionStart)) ? complete() : close()));
field.addEventListener("blur", () => setTimeout(close, 150));
list.addEventListener("mousedown", (event) => {
  const item = event.target.closest("[data-n]");
  if (item) { event.preventDefault(); take(Number(item.dataset.n)); }
});

// Results

async function run() {
  close();
  const text = field.value.trimEnd();
  if (!text.trim()) return;
  remember(text);
  state.textContent = "running";
  results.replaceChildren();
  const began = performance.now();
  try {
    const found = writes
      ? await read("/sql", { method: "POST", headers: { "content-type": "application/json", "X-Penstock": "1" }, body: JSON.stringify({ sql: text }) })
      : await read(`/sql?sql=${encodeURIComponent(text)}`);
    for (const each of found.results) results.append(result(each, results.childElementCount));
    sortTables();
    state.textContent = `done in ${((performance.now() - began) / 1000).toFixed(1)} s`;
  } catch (error) {
    state.textContent = "";
    results.append(element("section", { class: "panel problem", role: "alert" }, element("p", {}, error.message),
      ...(error.line ? place(text, error.line, error.column ?? 1) : [])));
  }
}

// Queries that run have a button that shows what they run.
function cell(each, n, value) {
  const names = each.columns.map((column) => column.name.toLowerCase());
  if (typeof value !== "string" || names[n] !== "id" || !names.includes("querytype") || !/^\w+$/.test(value)) return [text(value)];
  const button = element("button", { type: "button", title: "Show what it runs" }, value);
  button.addEventListener("click", () => { field.value = `EXPLAIN ${value};`; run(); });
  return [button];
}

function text(value) {
  if (value === null || value === undefined) return "null";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

// What a query runs: the same boxes as on the page of the topology, without figures.
const SVG = "http://www.w3.org/2000/svg";
function drawn(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.map((each) => (typeof each === "string" ? visible(each) : each)));
  return made;
}

function graph(found) {
  const figure = element("figure", { class: "graph", tabindex: "0", role: "region", "aria-label": "Graph of the query" }, element("p", { class: "waits" }, "The graph is being laid out."));
  const short = (name) => (name.length > 34 ? `${name.slice(0, 12)}…${name.slice(-21)}` : name);
  const boxes = found.boxes.map((each) => ({ id: each.id, width: Math.max(110, short(each.name).length * 6.9 + 26), height: 38 }));
  const worker = new Worker(`${root}/static/layout.js`);
  worker.onerror = () => { figure.textContent = "The graph could not be laid out; the text below has the same."; };
  worker.onmessage = ({ data }) => {
    worker.terminate();
    const touches = new Set(found.touches.map((pair) => pair.join("\n")));
    const byId = new Map(found.boxes.map((each) => [each.id, each]));
    const marker = drawn("marker", { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, drawn("path", { d: "M0 0L8 4L0 8z" }));
    const lines = data.edges.map((edge) => {
      const isTouch = touches.has(`${edge.from}\n${edge.to}`);
      return drawn("path", { class: isTouch ? "touch" : "arrow", d: edge.points.map((p, n) => `${n ? "L" : "M"}${p.x.toFixed(1)} ${p.y.toFixed(1)}`).join(""), ...(isTouch ? {} : { "marker-end": "url(#head)" }) });
    });
    const places = data.boxes.map((place) => {
      const each = byId.get(place.id);
      return drawn("g", { class: `box ${each.kind}`, transform: `translate(${(place.x - place.width / 2).toFixed(1)} ${(place.y - place.height / 2).toFixed(1)})` },
        drawn("title", {}, each.name), drawn("rect", { width: place.width, height: place.height, rx: each.kind === "topic" ? 18 : each.kind === "store" ? 10 : 5 }),
        drawn("text", { x: place.width / 2, y: 17 }, short(each.name)), drawn("text", { class: "more", x: place.width / 2, y: 30 }, (each.operation || each.kind).toLowerCase()));
    });
    const said = found.boxes.filter((each) => each.kind === "node").map((each) => each.name).join(", then ");
    figure.replaceChildren(drawn("svg", { role: "img", "aria-label": said.slice(0, 2000), width: data.width + 16, height: data.height + 16, viewBox: `-8 -8 ${data.width + 16} ${data.height + 16}` }, drawn("defs", {}, marker), ...lines, ...places));
  };
  worker.postMessage({ boxes, arrows: [...found.arrows, ...found.touches], rankdir: results.clientWidth < 640 ? "TB" : "LR" });
  return figure;
}

function result(each, number) {
  const panel = element("section", { class: "panel" }, element("h2", { class: "mono" }, each.statement));
  if (each.graph?.boxes.length) {
    panel.append(graph(each.graph), element("details", {}, element("summary", { class: "dim" }, "All that the server says"), element("pre", { class: "scroll", tabindex: "0" }, each.message)));
    return panel;
  }
  if (each.message) panel.append(element("pre", { class: "scroll", tabindex: "0" }, each.message));
  if (!each.columns.length) return panel;
  const numbers = each.columns.map((_, n) => n).filter((n) => each.rows.length > 1 && each.rows.every((row) => typeof row[n] === "number" || row[n] === null));
  const table = element("table", { id: `rows-${number}` }, element("thead", {}, element("tr", {},
    ...each.columns.map((column, n) => element("th", numbers.includes(n) ? { class: "number" } : {}, column.name)))));
  const body = element("tbody");
  for (const row of each.rows) body.append(element("tr", {}, ...row.map((value, n) => element("td", { class: numbers.includes(n) ? "number" : "mono value" }, ...cell(each, n, value)))));
  table.append(body);
  const said = `${each.rows.length.toLocaleString()} row${each.rows.length === 1 ? "" : "s"}${each.is_cut ? ": the first ones; the query was ended" : ""}`;
  panel.append(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Rows" }, table), element("p", { class: "dim" }, said));
  if (numbers.length) {
    const button = element("button", { type: "button", "aria-pressed": "false" }, "Chart");
    const place = element("div", { role: "img", "aria-label": "The numbers of the rows; the table above has them" });
    place.hidden = true;
    button.addEventListener("click", () => {
      place.hidden = !place.hidden;
      button.setAttribute("aria-pressed", String(!place.hidden));
      if (!place.hidden && !place.firstChild) chart(place, each, numbers);
    });
    panel.append(element("p", {}, button), place);
  }
  return panel;
}

function colour(name) {
  const probe = element("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// Times stand on the axis where there are some, else the rows by number.
async function chart(place, each, numbers) {
  loading ??= new Promise((resolve, reject) => {
    const script = element("script", { src: `${root}/static/vendor/uPlot.iife.min.js` });
    script.onload = () => resolve(window.uPlot);
    script.onerror = reject;
    document.head.append(script);
  });
  const UPlot = await loading;
  const time = numbers.find((n) => /time|window(start|end)/i.test(each.columns[n].name));
  const order = each.rows.map((_, n) => n);
  if (time !== undefined) order.sort((a, b) => each.rows[a][time] - each.rows[b][time]);
  const x = order.map((n, at) => (time === undefined ? at + 1 : each.rows[n][time] / 1000));
  const shown = numbers.filter((n) => n !== time).slice(0, 5);
  const colours = ["--accent", "--c-read", "--c-publish", "--c-write", "--c-other"];
  const axis = { stroke: () => colour("--dim"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { stroke: () => colour("--line"), width: 1 } };
  const made = new UPlot({
    width: Math.max(280, place.clientWidth), height: 230, scales: { x: { time: time !== undefined } }, axes: [axis, { ...axis, size: 64 }],
    series: [{ label: time === undefined ? "Row" : each.columns[time].name },
      ...shown.map((n, at) => ({ label: each.columns[n].name, stroke: () => colour(colours[at]), width: 1.5, points: { show: x.length < 60 } }))],
  }, [x, ...shown.map((n) => order.map((row) => each.rows[row][n]))], place);
  addEventListener("penstock-theme", () => made.redraw(false));
}

document.getElementById("run").addEventListener("click", run);
for (const example of document.querySelectorAll("[data-example]"))
  example.addEventListener("click", () => { field.value = example.dataset.example; run(); });
