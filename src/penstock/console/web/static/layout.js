// Places of boxes and arrows, in a worker: a large topology takes seconds.
"use strict";
importScripts("vendor/dagre.min.js");
onmessage = ({ data }) => {
  const graph = new dagre.graphlib.Graph({ multigraph: false });
  graph.setGraph({ rankdir: data.rankdir, nodesep: data.rankdir === "LR" ? 14 : 22, ranksep: data.rankdir === "LR" ? 24 : 46, marginx: 4, marginy: 4 });
  graph.setDefaultEdgeLabel(() => ({ width: 50, height: 14, labelpos: "c" }));
  for (const box of data.boxes) graph.setNode(box.id, { width: box.width, height: box.height });
  for (const [from, to] of data.arrows) if (graph.hasNode(from) && graph.hasNode(to)) graph.setEdge(from, to);
  dagre.layout(graph);
  postMessage({
    width: graph.graph().width,
    height: graph.graph().height,
    boxes: graph.nodes().map((id) => ({ id, ...graph.node(id) })),
    edges: graph.edges().map((edge) => ({ from: edge.v, to: edge.w, points: graph.edge(edge).points })),
  });
};

