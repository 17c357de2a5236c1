// Batches over time, drawn by uPlot with the page's colours.
const root = document.body.dataset.root;
let chart = null;
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

function options(UPlot, width) {
  const axis = { stroke: () => colour("--dim"), grid: { stroke: () => colour("--line"), width: 1 }, ticks: { stroke: () => colour("--line"), width: 1 } };
  const line = (label, scale, name) => ({ label, scale, stroke: () => colour(name), width: 1.5, points: { show: false } });
  return {
    width, height: 230, cursor: { drag: { x: true, y: false } },
    scales: { s: { range: (u, low, high) => [0, (high || 1) * 1.1] }, n: { range: (u, low, high) => [0, (high || 1) * 1.1] } },
    axes: [axis, { ...axis, scale: "s", values: (u, all) => all.map((v) => `${v} s`), size: 56 },
      { ...axis, scale: "n", side: 1, grid: { show: false }, size: 64, values: (u, all) => all.map((v) => v.toLocaleString()) }],
    series: [{ label: "Time" }, line("Seconds", "s", "--accent"), line("Records in", "n", "--c-read"), line("Lag", "n", "--c-publish")],
  };
}

export async function update() {
  const place = document.getElementById("chart");
  if (!place) return;
  const UPlot = await loaded();
  const data = JSON.parse(place.dataset.chart);
  if (chart === null || !place.contains(chart.root)) {
    place.replaceChildren();
    chart = new UPlot(options(UPlot, place.clientWidth), data, place);
  } else chart.setData(data);
}
addEventListener("penstock-theme", () => chart?.redraw(false));
addEventListener("resize", () => {
  const place = document.getElementById("chart");
  if (chart && place) chart.setSize({ width: place.clientWidth, height: 230 });
});
