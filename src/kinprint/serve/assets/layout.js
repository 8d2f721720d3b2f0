/* A worker that lays the graph out once: forces within each family (d3-force), families side by side as circles (d3-hierarchy).
   Forces on the whole graph take three times as long, and drive families that have nothing to do with each other apart at random. */
'use strict';
const TICKS = 90;
onmessage = ({ data: { d3: script, count, edges } }) => {
  importScripts(script);
  const above = Int32Array.from({ length: count }, (_, at) => at);
  const top = (at) => { while (above[at] !== at) { above[at] = above[above[at]]; at = above[at]; } return at; };
  for (const [a, b] of edges) above[top(a)] = top(b);
  const groups = new Map();
  for (let at = 0; at < count; at += 1) {
    const root = top(at);
    if (!groups.has(root)) groups.set(root, { nodes: [], links: [] });
    groups.get(root).nodes.push({ at });
  }
  for (const [a, b] of edges) groups.get(top(a)).links.push({ source: a, target: b });
  let done = 0;
  for (const group of groups.values()) {
    if (group.nodes.length > 1) {
      d3.forceSimulation(group.nodes).alphaDecay(1 - 0.001 ** (1 / TICKS))
        .force('link', d3.forceLink(group.links).id((node) => node.at).distance(18))
        .force('apart', d3.forceManyBody().strength(-26).theta(1.2).distanceMax(260))
        .force('x', d3.forceX().strength(0.06)).force('y', d3.forceY().strength(0.06)).stop().tick(TICKS);
    } else Object.assign(group.nodes[0], { x: 0, y: 0 });
    group.r = 9 + group.nodes.reduce((most, node) => Math.max(most, Math.hypot(node.x, node.y)), 0);
    done += group.nodes.length;
    postMessage({ share: done / count });
  }
  const circles = [...groups.values()].sort((a, b) => b.r - a.r);
  d3.packSiblings(circles);
  const x = new Float32Array(count), y = new Float32Array(count);
  for (const group of circles) for (const node of group.nodes) { x[node.at] = group.x + node.x; y[node.at] = group.y + node.y; }
  postMessage({ x, y }, [x.buffer, y.buffer]);
};
