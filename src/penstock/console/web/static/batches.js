// Charts over time, drawn by uPlot with the page's colours: one for each unit, one zoom for all, which an update keeps.
const root = document.body.dataset.root;
const COLOURS = ["--accent", "--c-write", "--c-publish"];
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const minute = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
let charts = [];
let zoom = null; // [from, to] in seconds
let loading = null;

function loaded() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = `${root}/static/vendor/uPlot.iife.min.js`;
    script.onload = () => resolve(window.uPlot);
    script.onerror = reject;
    document.head.append(script);
  });
  return loading;
}

function colour(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

// As the server formats numbers.
function short(value) {
  if (value >= 1e9) return `${(value / 1e9).toFixed(1)} G`;
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return value >= 10 || value === 0 ? Math.round(value).toLocaleString() : String(Number(value.toPrecision(2)));
}

// Values before a gap, where no line begins: without a point nobody would see them.
function alone(chart, at) {
  const values = chart.data[at];
  const found = [...values.keys()].filter((n) => values[n] != null && n + 1 < values.length && values[n + 1] == null);
  return found.length ? found : null;
}

function options(UPlot, chart, width) {
  const axis = { stroke: () => colour("--dim"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { stroke: () => colour("--line"), width: 1 } };
  const steps = UPlot.paths.stepped({ align: 1 });
  let own = -1;
  const lines = chart.lines.map((line) => {
    if (!line.is_past) own += 1;
    const name = COLOURS[own % COLOURS.length];
    return { label: line.label, paths: steps, stroke: () => colour(name), width: line.is_past ? 1 : 1.6, dash: line.is_past ? [5, 4] : undefined,
      points: { show: false, size: 4, fill: () => colour(name), filter: alone }, value: (u, value) => (value == null ? "-" : `${short(value)} ${chart.unit}`) };
  });
  return {
    title: `${chart.title} (${chart.unit})`, width, height: 190,
    cursor: { drag: { x: true, y: false }, sync: { key: "charts" } },
    scales: { y: { range: (u, low, high) => [0, (high || 1) * 1.1] } },
    axes: [{ ...axis, values: (u, all, at, space, step) => all.map((each) => (step < 60 ? clock : minute).format(each * 1000)) },
      { ...axis, values: (u, all) => all.map(short), size: 60 }],
    series: [{ label: "Time", value: (u, value) => (value == null ? "-" : clock.format(value * 1000)) }, ...lines],
    hooks: { setSelect: [(u) => { if (u.select.width > 0) zoomTo([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]); }] },
  };
}

function zoomTo(wanted) {
  zoom = wanted;
  document.getElementById("unzoom").toggleAttribute("data-own-zoomed", zoom !== null); // an update leaves it
  const hash = zoom === null ? "" : `#zoom=${zoom.map(Math.round).join("-")}`;
  history.replaceState(null, "", location.pathname + location.search + hash);
  for (const each of charts) scaled(each);
}

function scaled(chart) {
  const all = chart.data[0];
  chart.setScale("x", zoom === null ? { min: all[0], max: all[all.length - 1] } : { min: zoom[0], max: zoom[1] });
}

export function begin() {
  const kept = location.hash.match(/^#zoom=(\d{9,11})-(\d{9,11})$/);
  if (kept && Number(kept[1]) < Number(kept[2])) zoom = [Number(kept[1]), Number(kept[2])];
}

export async function update() {
  const place = document.getElementById("charts");
  if (!place) return;
  const UPlot = await loaded();
  const { times, charts: wanted } = JSON.parse(place.dataset.charts);
  if (!times.length) return;
  if (charts.length === 0 || !place.contains(charts[0].root)) {
    place.replaceChildren();
    charts = wanted.map((each) => new UPlot(options(UPlot, each, place.clientWidth), [times, ...each.lines.map((line) => line.values)], place));
    for (const each of charts) each.over.addEventListener("dblclick", () => zoomTo(null));
    document.getElementById("unzoom").addEventListener("click", () => zoomTo(null));
    document.getElementById("unzoom").toggleAttribute("data-own-zoomed", zoom !== null);
  } else charts.forEach((each, number) => each.setData([times, ...wanted[number].lines.map((line) => line.values)], false));
  for (const each of charts) scaled(each);
}
addEventListener("penstock-theme", () => { for (const each of charts) each.redraw(false); });
addEventListener("resize", () => {
  const place = document.getElementById("charts");
  if (place) for (const each of charts) each.setSize({ width: place.clientWidth, height: 190 });
});
