// The topology as a graph: laid out once by a worker, then only its figures change.
import { visible } from "./visible.js";

const SVG = "http://www.w3.org/2000/svg";
const FOLD_FROM = 25; // boxes
const NARROW = 640; // pixels, where a graph goes from top to bottom
const KEPT = "penstock-layout-";
const root = document.body.dataset.root;
let drawn = "";
let folded = null;
let opened = new Set(); // sub-topologies that are open although the others are folded
let scale = 1;
let box = null;

export function update() {
  const figure = document.getElementById("graph");
  if (!figure) return;
  const source = figure.dataset.graph;
  if (drawn !== source) {
    drawn = source;
    const graph = JSON.parse(source);
    if (folded === null) folded = graph.boxes.length > FOLD_FROM;
    lay(figure, folded ? fold(graph) : graph);
  } else rates(figure);
}

// One box for each sub-topology, with the topics and stores that stay.
function fold(graph) {
  const stays = (each) => each.kind === "topic" || opened.has(String(each.group));
  const of = new Map(graph.boxes.map((each) => [each.id, stays(each) ? each.id : `group_${each.group}`]));
  const boxes = graph.boxes.filter(stays);
  for (const group of graph.groups) {
    if (opened.has(String(group.id))) continue;
    const inside = graph.boxes.filter((each) => each.group === group.id && each.kind !== "topic");
    const ids = new Set(inside.map((each) => each.id));
    const named = new Map(graph.boxes.map((each) => [each.id, each]));
    const ends = (isEnd) => graph.arrows.filter(isEnd).map((pair) => pair.map((each) => named.get(each).name));
    boxes.push({ id: `group_${group.id}`, kind: "group", name: group.title, group: group.id,
      members: inside.map((each) => each.name), words: inside.map((each) => `${each.name} ${each.label ?? ""}`).join(" "),
      reads: ends(([a, b]) => ids.has(b) && named.get(a)?.kind === "topic"), // topic and source
      writes: ends(([a, b]) => ids.has(a) && named.get(b)?.kind === "topic") }); // sink and topic
  }
  const pairs = new Set(graph.arrows.map(([a, b]) => `${of.get(a)} ${of.get(b)}`));
  const arrows = [...pairs].map((pair) => pair.split(" ")).filter(([a, b]) => a !== b);
  const kept = new Set(boxes.map((each) => each.id));
  return { groups: [], boxes, arrows, touches: graph.touches.filter(([a, b]) => kept.has(a) && kept.has(b)) };
}

function labelOf(box) {
  const label = box.label || box.name;
  return label.length > 34 ? `${label.slice(0, 12)}…${label.slice(-21)}` : label;
}

// The operation below the label, unless it is the label.
function secondLine(box) {
  return box.operation && box.operation !== labelOf(box) ? box.operation : "";
}

function lay(figure, graph) {
  document.getElementById("fold").setAttribute("aria-pressed", String(folded));
  const sizes = graph.boxes.map((each) => ({ id: each.id, width: Math.max(each.kind === "group" ? 190 : 110, labelOf(each).length * 6.9 + 26), height: each.kind === "node" || each.kind === "group" ? 46 : 36 }));
  const wanted = { boxes: sizes, arrows: [...graph.arrows, ...graph.touches], rankdir: figure.clientWidth < NARROW ? "TB" : "LR" };
  const key = KEPT + digest(JSON.stringify(wanted));
  const known = kept(key);
  if (known) { draw(figure, graph, known); return; }
  figure.replaceChildren(Object.assign(document.createElement("p"), { className: "waits", textContent: "The graph is being laid out." }));
  const worker = new Worker(`${root}/static/layout.js`);
  worker.onmessage = ({ data }) => { worker.terminate(); keep(key, data); draw(figure, graph, data); };
  worker.onerror = () => { figure.textContent = "The graph could not be laid out; the table below has the same."; };
  worker.postMessage(wanted);
}

// Places are kept in the browser: a topology is laid out once, not at each visit.
function digest(text) {
  let hash = 5381;
  for (let n = 0; n < text.length; n++) hash = ((hash << 5) + hash + text.charCodeAt(n)) | 0;
  return `${text.length}-${hash}`;
}

function kept(key) {
  try { return JSON.parse(localStorage.getItem(key)); } catch { return null; }
}

function keep(key, places) {
  try {
    const old = Object.keys(localStorage).filter((each) => each.startsWith(KEPT));
    if (old.length >= 6) for (const each of old) localStorage.removeItem(each);
    localStorage.setItem(key, JSON.stringify(places));
  } catch { /* storage is full, or switched off */ }
}

function element(name, attributes, parent, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = visible(text);
  parent?.append(made);
  return made;
}

function draw(figure, graph, places) {
  box = { x: -12, y: -12, width: places.width + 24, height: places.height + 24 };
  const svg = element("svg", { class: "topology", role: "group", "aria-label": "Topology" });
  const heads = element("defs", {}, svg);
  const head = element("marker", { id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, heads);
  element("path", { d: "M0 0L8 4L0 8z" }, head);
  const touches = new Set(graph.touches.map(([a, b]) => `${a} ${b}`));
  const byId = new Map(graph.boxes.map((each) => [each.id, each]));
  const sideways = figure.clientWidth >= NARROW;
  for (const edge of places.edges) {
    const d = edge.points.map((p, n) => `${n ? "L" : "M"}${p.x.toFixed(1)} ${p.y.toFixed(1)}`).join("");
    const touch = touches.has(`${edge.from} ${edge.to}`);
    element("path", { class: touch ? "touch" : "arrow", d, "data-from": byId.get(edge.from)?.name ?? "", ...(touch ? {} : { "marker-end": "url(#head)" }) }, svg);
    if (!touch) {
      const middle = edge.points[Math.floor(edge.points.length / 2)];
      element("text", { class: "rate", "aria-hidden": "true", x: middle.x + (sideways ? -18 : 5), y: middle.y - (sideways ? 5 : 0), "data-of": byId.get(edge.from)?.name ?? "", "data-to": byId.get(edge.to)?.name ?? "" }, svg, "");
    }
  }
  for (const place of places.boxes) {
    const each = byId.get(place.id);
    const x = place.x - place.width / 2;
    const y = place.y - place.height / 2;
    const group = element("g", { class: `box ${each.kind}`, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})`, tabindex: 0, role: "button", "data-id": each.id, "data-name": each.name, "data-words": `${each.name} ${each.label ?? ""} ${each.words ?? ""}`.toLowerCase(), "data-target": each.target ?? "" }, svg);
    group.each = each;
    element("title", {}, group, each.name);
    element("rect", { width: place.width, height: place.height, rx: each.kind === "topic" ? 18 : each.kind === "store" ? 10 : 5 }, group);
    if (each.kind === "node" || each.kind === "group") {
      element("rect", { class: "rail", x: 8, y: place.height - 8, width: place.width - 16, height: 3, rx: 1.5 }, group);
      element("rect", { class: "time", x: 8, y: place.height - 8, width: 0, height: 3, rx: 1.5, "data-width": place.width - 16 }, group);
    }
    element("text", { class: "name", "aria-hidden": "true", x: place.width / 2, y: each.kind === "node" && !secondLine(each) ? 24 : each.kind === "node" || each.kind === "group" ? 16 : place.height / 2 + (each.kind === "store" || each.kind === "topic" ? -2 : 4) }, group, labelOf(each));
    element("text", { class: "more", "aria-hidden": "true", x: place.width / 2, y: each.kind === "node" || each.kind === "group" ? 30 : place.height / 2 + 11 }, group, secondLine(each));
  }
  figure.replaceChildren(svg);
  scale = Math.min(1, Math.max(0.6, (figure.clientWidth - 20) / box.width));
  shown(svg);
  svg.addEventListener("click", choose);
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(event); }
    const step = { ArrowRight: [graph.arrows, 0, 1], ArrowDown: [graph.arrows, 0, 1], ArrowLeft: [graph.arrows, 1, 0], ArrowUp: [graph.arrows, 1, 0] }[event.key];
    const at = event.target.dataset?.id;
    if (!step || !at) return;
    const next = step[0].find((pair) => pair[step[1]] === at)?.[step[2]];
    if (next) { event.preventDefault(); svg.querySelector(`[data-id="${next}"]`)?.focus(); }
  });
  rates(figure);
}

function choose(event) {
  const group = event.target.closest?.(".box");
  if (!group) return;
  const parameters = new URLSearchParams(location.search);
  if (group.classList.contains("group")) {
    opened.add(group.dataset.id.replace("group_", ""));
    drawn = "";
    update();
    return;
  }
  if (group.classList.contains("node")) { parameters.set("node", group.dataset.name); location.search = parameters; }
  const app = parameters.get("app") ? `?app=${encodeURIComponent(parameters.get("app"))}` : "";
  if (group.dataset.target) location.href = `${root}/topics/${encodeURIComponent(group.dataset.target)}${app}`;
  if (group.classList.contains("store")) location.href = `${root}/stores/${encodeURIComponent(group.dataset.name)}${app}`;
}

function short(value) {
  if (Number.isInteger(value) && value < 1e4) return value.toFixed(0);
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return value >= 10 || value === 0 ? value.toFixed(0) : value.toPrecision(2);
}

function rates(figure) {
  const live = JSON.parse(figure.dataset.live);
  const chosen = new URLSearchParams(location.search).get("node");
  for (const group of figure.querySelectorAll(".box")) {
    const name = group.dataset.name;
    const [taken, given, share] = group.classList.contains("group") ? summed(group.each, live) : live.nodes[name] ?? [0, 0, 0];
    const time = group.querySelector(".time");
    if (time) time.setAttribute("width", (share * time.dataset.width).toFixed(1));
    group.classList.toggle("hot", share >= 0.3);
    group.classList.toggle("chosen", name === chosen);
    const more = group.querySelector(".more");
    let said = `${name}`;
    if (group.classList.contains("store")) more.textContent = said = `${short(live.stores[name] ?? 0)} rows`;
    else if (group.classList.contains("topic")) more.textContent = said = name in live.lag ? `lag ${short(live.lag[name])}` : "";
    else if (group.classList.contains("group")) {
      const lag = [...new Set(group.each.reads.map(([topic]) => topic))].reduce((sum, topic) => sum + (live.lag[topic] ?? 0), 0);
      more.textContent = said = `${short(taken)} /s in, ${short(given)} /s out, ${(share * 100).toFixed(0)} %${lag ? `, lag ${short(lag)}` : ""}`;
    } else said = `${short(taken)} rows a second in, ${short(given)} out, ${(share * 100).toFixed(0)} % of the time`;
    group.querySelector("title").textContent = `${group.classList[1]} ${name}, ${said}`;
  }
  for (const label of figure.querySelectorAll(".rate")) {
    const rate = live.nodes[label.dataset.of]?.[1] ?? live.nodes[label.dataset.to]?.[0] ?? rateOfGroup(figure, label.dataset, live);
    label.textContent = rate ? `${short(rate)} /s` : "";
  }
  for (const arrow of figure.querySelectorAll(".arrow")) {
    const rate = live.nodes[arrow.dataset.from]?.[1] ?? 0;
    arrow.setAttribute("stroke-width", (1.2 + Math.log10(1 + rate) * 0.5).toFixed(2));
  }
}

// The rates of a folded sub-topology: what its sources take, what its sinks give, and its nodes' share of the time.
function summed(group, live) {
  const add = (names, at) => [...new Set(names)].reduce((sum, name) => sum + (live.nodes[name]?.[at] ?? 0), 0);
  return [add(group.reads.map(([, source]) => source), 0), add(group.writes.map(([sink]) => sink), 1), Math.min(1, add(group.members, 2))];
}

// The rate of an arrow between a topic and a folded sub-topology: of the sources or sinks of this topic alone.
function rateOfGroup(figure, ends, live) {
  const groups = [...figure.querySelectorAll(".box.group")].map((each) => each.each);
  const [to, from] = [ends.to, ends.of].map((name) => groups.find((each) => each.name === name));
  if (to) return summed({ ...to, reads: to.reads.filter(([topic]) => topic === ends.of) }, live)[0];
  return from ? summed({ ...from, writes: from.writes.filter(([, topic]) => topic === ends.to) }, live)[1] : 0;
}

// A search marks the boxes that it finds and shows the next one in the middle.
let hit = -1;
document.addEventListener("input", (event) => { if (event.target.id === "find") { hit = -1; seek(event.target.value); } });
document.addEventListener("keydown", (event) => {
  if (event.target.id === "find" && event.key === "Enter") { event.preventDefault(); seek(event.target.value); }
});
function seek(text) {
  const figure = document.getElementById("graph");
  const boxes = [...figure.querySelectorAll(".box")];
  const wanted = text.trim().toLowerCase();
  const hits = wanted ? boxes.filter((each) => each.dataset.words.includes(wanted)) : [];
  for (const each of boxes) each.classList.toggle("hit", hits.includes(each));
  if (!hits.length) return;
  hit = (hit + 1) % hits.length;
  const box = hits[hit].getBoundingClientRect();
  const frame = figure.getBoundingClientRect();
  figure.scrollBy(box.x + box.width / 2 - frame.x - frame.width / 2, box.y + box.height / 2 - frame.y - frame.height / 2);
}

function fitting(figure) {
  return Math.min(1, (figure.clientWidth - 20) / box.width, (figure.clientHeight - 20) / box.height);
}

function shown(svg) {
  svg.setAttribute("viewBox", `${box.x} ${box.y} ${box.width} ${box.height}`);
  svg.setAttribute("width", Math.round(box.width * scale));
  svg.setAttribute("height", Math.round(box.height * scale));
}

document.addEventListener("click", (event) => {
  const svg = document.querySelector("svg.topology");
  const zoom = event.target.closest?.("[data-zoom]")?.dataset.zoom;
  if (svg && zoom) {
    scale = zoom === "fit" ? fitting(svg.parentElement) : Math.min(4, Math.max(0.1, scale * { in: 1.25, out: 0.8 }[zoom]));
    shown(svg);
  }
  if (event.target.closest?.("#fold")) {
    folded = opened.size > 0 ? true : !folded;
    opened = new Set();
    drawn = "";
    update();
  }
});
