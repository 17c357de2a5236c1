// What all pages share: updates, times in the reader's zone, keys, light and dark.
import { morph } from "./morph.js";

const body = document.getElementById("body");
const root = document.body.dataset.root;
const connection = document.getElementById("connection");
const freeze = document.getElementById("freeze");
const MODULES = { topology: "./topology.js", batches: "./batches.js", sql: "./sql.js", topic: "./search.js" };
let updated = () => {};

// On a phone the menu is wider than the screen: it begins where the reader is.
const here = document.querySelector(".menu [aria-current]");
const showHere = () => { if (here) here.parentElement.scrollLeft = here.offsetLeft - (here.parentElement.clientWidth - here.offsetWidth) / 2; };
showHere();
addEventListener("resize", showHere); // a phone that is turned

// Times

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
document.getElementById("zone").textContent = zone;
const day = new Intl.DateTimeFormat(undefined, { dateStyle: "short" });
const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23" });

function age(ms) {
  const s = Math.max(0, ms / 1000);
  if (s < 90) return `${Math.round(s)} s ago`;
  if (s < 5400) return `${Math.round(s / 60)} min ago`;
  if (s < 172800) return `${Math.round(s / 3600)} h ago`;
  return `${Math.round(s / 86400)} days ago`;
}

export function times(within) {
  const today = day.format(new Date());
  for (const each of within.querySelectorAll("time[datetime]")) {
    const when = new Date(each.dateTime);
    if (Number.isNaN(when.getTime())) continue;
    const date = day.format(when);
    const text = each.hasAttribute("data-ago") ? age(Date.now() - when.getTime())
      : (date === today ? "" : `${date} `) + clock.format(when);
    if (each.textContent !== text) each.textContent = text;
    const title = `${each.dateTime}, here ${date} ${clock.format(when)}`;
    if (each.title !== title) each.title = title;
  }
}

// Updates: one stream for a visible page; a hidden one, and a frozen one, costs nothing.

let stream = null;
let seen = "";
let frozen = false;

function say(text) {
  if (connection.textContent !== text) connection.textContent = text;
  document.documentElement.dataset.connection = text || "live";
}

function follow() {
  if (stream !== null || frozen || document.hidden || document.body.dataset.page === "problem") return;
  const of = location.pathname.slice(root.length) + location.search;
  stream = new EventSource(`${root}/live?of=${encodeURIComponent(of)}&seen=${seen}`);
  stream.addEventListener("open", () => { say(""); lost(false); });
  stream.addEventListener("error", () => {
    say("no connection, trying again");
    lost(true);
    if (stream !== null && stream.readyState === EventSource.CLOSED) {
      stream = null;
      setTimeout(follow, 2000);
    }
  });
  stream.addEventListener("body", (event) => {
    seen = event.lastEventId;
    show(JSON.parse(event.data));
  });
}

// A server that is gone is said over everything: what stands below it is old.

let goneSince = 0;

function lost(isGone) {
  goneSince = isGone ? goneSince || Date.now() : 0;
  showGone();
}

function showGone() {
  const banner = document.getElementById("gone");
  const isShown = goneSince !== 0 && Date.now() - goneSince >= 2000;
  if (isShown) banner.textContent = `The server of this console does not answer since ${clock.format(goneSince)}, ` +
    `${age(Date.now() - goneSince)}. All figures below are of that time; this page goes on by itself when it is back.`;
  banner.hidden = !isShown;
  document.documentElement.toggleAttribute("data-gone", isShown);
}
setInterval(showGone, 1000);

function leave() {
  if (stream !== null) stream.close();
  stream = null;
}

function show(html) {
  const wanted = document.createElement("main");
  wanted.innerHTML = html; // rendered by the server, which escapes all values; scripts in it would not run
  times(wanted);
  const copy = body.cloneNode(false);
  copy.append(...wanted.childNodes);
  morph(body, copy);
  updated();
}

document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));
addEventListener("pagehide", leave);
addEventListener("pageshow", follow);

function setFrozen(wanted) {
  frozen = wanted;
  freeze.setAttribute("aria-pressed", String(frozen));
  freeze.textContent = frozen ? "Frozen" : "Freeze";
  if (frozen) leave(); else follow();
}
freeze.addEventListener("click", () => setFrozen(!frozen));

// Light and dark

function nextTheme() {
  const now = document.documentElement.dataset.theme ?? "system";
  const next = { system: "light", light: "dark", dark: "system" }[now];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try { localStorage.setItem("penstock-theme", next); } catch { /* switched off */ }
  dispatchEvent(new Event("penstock-theme"));
}
document.getElementById("theme").addEventListener("click", nextTheme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("penstock-theme")));

// Keys

const keys = document.getElementById("keys");
document.getElementById("help").addEventListener("click", () => keys.showModal());
let prefix = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, dialog[open]")) return;
  if (event.key === "g") { prefix = Date.now(); return; }
  if (Date.now() - prefix < 1500) {
    prefix = 0;
    const link = document.querySelector(`.menu a[data-key="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); location.href = link.href; }
    return;
  }
  const step = document.querySelector(`a[data-step="${CSS.escape(event.key)}"]`); // the previous and next message
  if (step) location.href = step.href;
  else if (event.key === "?") keys.showModal();
  else if (event.key === "f") setFrozen(!frozen);
  else if (event.key === "d") nextTheme();
  else if (event.key === "/") {
    const find = document.querySelector("[data-find]");
    if (find) { event.preventDefault(); find.focus(); }
  }
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submits]")) event.target.form.requestSubmit();
});
// Empty fields do not belong into addresses.
document.addEventListener("submit", (event) => {
  if (event.target.method !== "get") return;
  for (const field of event.target.elements) if (field.name && field.value === "") field.disabled = true;
});
addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("form[method=get] :disabled")) field.disabled = false;
});
// Rows of a table by a text, at once.
document.addEventListener("input", (event) => {
  const table = document.getElementById(event.target.dataset.find ?? "");
  if (table) filterRows(event.target.value, table);
});
function filterRows(text, table) {
  for (const row of table.tBodies[0]?.rows ?? [])
    row.toggleAttribute("hidden", !row.textContent.toLowerCase().includes(text.toLowerCase()));
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const place = document.getElementById(button.dataset.copy);
  const text = place instanceof HTMLTableElement
    ? [...place.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim()).join(": ")).join("\n")
    : place?.textContent ?? "";
  navigator.clipboard?.writeText(text).then(() => { button.textContent = "Copied"; });
});

// Tables with an id are sorted by a click on a head; the address keeps it: sort=TABLE.COLUMN, with a - for the largest first.
const UNITS = { ms: 0.001, s: 1, min: 60, h: 3600, d: 86400, k: 1e3, M: 1e6, G: 1e9, KiB: 1024, MiB: 1048576, GiB: 1073741824 };
function sortKey(cell) {
  const when = cell.querySelector("time[datetime]");
  if (when) return Date.parse(when.dateTime);
  const text = cell.textContent.trim();
  if (!/^[-+]?[\d.,]+(\s|%|$)/.test(text)) return text === "-" ? -Infinity : text.toLowerCase();
  let sum = 0;
  for (const [, number, unit] of text.replaceAll(",", "").matchAll(/([-+]?[\d.]+)\s*([a-zA-Z]*)/g)) sum += Number(number) * (UNITS[unit] ?? 1);
  return sum;
}
function sortTables() {
  const [, id, sign, column] = (new URLSearchParams(location.search).get("sort") ?? "").match(/^([\w-]+)\.(-?)(\d{1,2})$/) ?? [];
  for (const table of document.querySelectorAll("main table[id]")) {
    const heads = [...table.tHead?.rows[0]?.cells ?? []];
    const isSorted = table.id === id && Number(column) < heads.length;
    heads.forEach((head, at) => {
      head.dataset.ownSort = ""; // the page's own mark, which an update leaves
      head.tabIndex = 0;
      if (isSorted && at === Number(column)) head.setAttribute("aria-sort", sign ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    if (!isSorted) continue;
    const rows = [...table.tBodies[0].rows].map((row) => [sortKey(row.cells[column]), row]);
    const way = sign ? -1 : 1;
    rows.sort(([a], [b]) => way * (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1));
    table.tBodies[0].append(...rows.map(([, row]) => row));
  }
}
function sortBy(head) {
  const table = head.closest("table");
  const parameters = new URLSearchParams(location.search);
  const down = head.classList.contains("number") ? head.getAttribute("aria-sort") !== "descending" : head.getAttribute("aria-sort") === "ascending";
  parameters.set("sort", `${table.id}.${down ? "-" : ""}${head.cellIndex}`);
  history.replaceState(null, "", `${location.pathname}?${parameters}${location.hash}`);
  sortTables();
}
document.addEventListener("click", (event) => { const head = event.target.closest("th[data-own-sort]"); if (head) sortBy(head); });
document.addEventListener("keydown", (event) => {
  if ((event.key === "Enter" || event.key === " ") && event.target.matches("th[data-own-sort]")) { event.preventDefault(); sortBy(event.target); }
});

times(document);
sortTables();
setInterval(() => { if (!document.hidden && !frozen) times(document); }, 5000);
const page = document.body.dataset.page;
const own = page === "sql" && !document.getElementById("sql") ? undefined : MODULES[page]; // without a server of SQL
if (own) {
  const module = await import(own);
  module.begin?.({ times, setFrozen, sortTables });
  updated = () => { module.update(); refilter(); };
  module.update();
} else updated = () => refilter();
function refilter() {
  sortTables();
  for (const field of document.querySelectorAll("[data-find]"))
    if (field.value && field.dataset.find) filterRows(field.value, document.getElementById(field.dataset.find));
}
follow();
document.documentElement.dataset.ready = "true";
