// What the plan's view shows of a document: which nodes, in which order. No element is touched here.

import { familyOf } from "./families.js";

/**
 * @typedef {import("./types").PlanDocument} PlanDocument
 * @typedef {{text: string, gate: string, pool: string, workload: string, families: Set<string>, sort: string}} Filter
 * @typedef {{podsOf: number[][], hay: string[], family: string[], workloadsOf: Set<number>[]}} Index
 */

/**
 * Look everything up once, so that a filter only compares.
 * @param {PlanDocument} document
 * @returns {Index}
 */
export function indexOf(document) {
  const { nodes, pods, workloads } = document;
  /** @type {number[][]} */
  const podsOf = nodes.name.map(() => []);
  /** @type {Set<number>[]} */
  const workloadsOf = nodes.name.map(() => new Set());
  pods.node.forEach((node, pod) => {
    podsOf[node].push(pod);
    workloadsOf[node].add(pods.workload[pod]);
  });
  const hay = nodes.name.map((name, node) => [
    name, nodes.pool[node], nodes.zone[node], nodes.type[node], nodes.capacityType[node], nodes.verdict[node], nodes.closing[node] ? "closing" : "",
    ...[...workloadsOf[node]].map((workload) => workloads[workload]), ...podsOf[node].map((pod) => pods.name[pod]),
  ].join("\n").toLowerCase());
  const family = nodes.verdict.map((verdict, node) => familyOf(verdict, nodes.action[node]));
  return { podsOf, hay, family, workloadsOf };
}

/** How full a node is, by what it has least of. @param {{cpu: number[], memory: number[], cpuUsed: number[], memoryUsed: number[]}} nodes @param {number} node */
export function fillOf(nodes, node) {
  return Math.max(nodes.cpuUsed[node] / Math.max(1, nodes.cpu[node]), nodes.memoryUsed[node] / Math.max(1, nodes.memory[node]));
}

/** The first thing to change for a node: that of its pool, else that of its check. @param {PlanDocument} document @param {number} node */
export function remedyOf({ nodes, remedies }, node) {
  return remedies[`${nodes.verdict[node]} ${nodes.pool[node]}`] ?? remedies[nodes.verdict[node]];
}

/** Stands for the nodes without a pool in a filter, where "" is every pool; no pool can have this name. */
export const NO_POOL = "/";

/**
 * The nodes that pass a filter, in order.
 * @param {PlanDocument} document
 * @param {Index} index
 * @param {Filter} filter
 */
export function chosenNodes(document, index, filter) {
  const { nodes, workloads } = document;
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  const workload = filter.workload === "" ? -1 : workloads.indexOf(filter.workload);
  const found = [];
  for (let node = 0; node < nodes.name.length; node += 1) {
    if (filter.gate !== "" && (filter.gate === "taken now" ? nodes.action[node] < 0 : nodes.verdict[node] !== filter.gate)) continue;
    if (filter.pool !== "" && (nodes.pool[node] || NO_POOL) !== filter.pool) continue;
    if (filter.families.has(index.family[node])) continue;
    if (workload >= 0 && !index.workloadsOf[node].has(workload)) continue;
    if (!words.every((word) => index.hay[node].includes(word))) continue;
    found.push(node);
  }
  return found.sort(orderOf(document, index, filter.sort));
}

/**
 * @param {PlanDocument} document
 * @param {Index} index
 * @param {string} sort
 * @returns {(a: number, b: number) => number}
 */
function orderOf({ nodes }, index, sort) {
  const byName = (/** @type {number} */ a, /** @type {number} */ b) => (nodes.name[a] < nodes.name[b] ? -1 : 1);
  /** @type {Record<string, (node: number) => number>} */
  const keys = {
    price: (node) => -nodes.price[node],
    fill: (node) => fillOf(nodes, node),
    age: (node) => -nodes.age[node],
    pods: (node) => index.podsOf[node].length,
    cost: (node) => nodes.cost[node],
  };
  const key = keys[sort];
  if (key) {
    const values = nodes.name.map((_, node) => key(node));
    return (a, b) => values[a] - values[b] || byName(a, b);
  }
  if (sort === "verdict") {
    const rank = ["goes", "ready", "waits", "held", "unfit", "price", "settled"];
    return (a, b) => rank.indexOf(index.family[a]) - rank.indexOf(index.family[b]) || (nodes.verdict[a] < nodes.verdict[b] ? -1 : nodes.verdict[a] > nodes.verdict[b] ? 1 : byName(a, b));
  }
  return byName;
}

/**
 * How many nodes stop at each gate, most first; those that would go now come first.
 * @param {PlanDocument} document
 */
export function gateCounts(document) {
  /** @type {Map<string, {nodes: number, price: number}>} */
  const counts = new Map();
  document.nodes.verdict.forEach((verdict, node) => {
    const key = document.nodes.action[node] >= 0 ? "taken now" : verdict;
    const entry = counts.get(key) ?? { nodes: 0, price: 0 };
    entry.nodes += 1;
    entry.price += Math.max(0, document.nodes.price[node]);
    counts.set(key, entry);
  });
  return [...counts].sort((a, b) => Number(b[0] === "taken now") - Number(a[0] === "taken now") || b[1].nodes - a[1].nodes || (a[0] < b[0] ? -1 : 1));
}
