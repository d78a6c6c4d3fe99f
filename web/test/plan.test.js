import assert from "node:assert/strict";
import { test } from "node:test";

import { FAMILIES, familyOf } from "../../src/dovetail/report/web/families.js";
import { arrange } from "../../src/dovetail/report/web/node_map.js";
import { NO_POOL, chosenNodes, fillOf, gateCounts, indexOf, remedyOf } from "../../src/dovetail/report/web/plan_state.js";

/**
 * @param {number} size
 * @returns {import("../../src/dovetail/report/web/types").PlanDocument}
 */
function plan(size) {
  /** @template T @param {(node: number) => T} of @returns {T[]} */
  const each = (of) => Array.from({ length: size }, (_, node) => of(node));
  const pods = size * 3;
  return {
    kind: "plan", title: "t", now: "2026-01-05T18:00:00Z", profile: "dovetail", live: false,
    nodes: {
      name: each((node) => `node-${String(node).padStart(5, "0")}`), pool: each((node) => (node % 2 ? "spot" : "default")), zone: each((node) => `z${node % 3}`),
      type: each(() => "m5.large"), capacityType: each(() => "spot"), price: each((node) => (node % 7) / 10), age: each((node) => node * 60),
      cpu: each(() => 2000), memory: each(() => 100), cpuUsed: each((node) => (node % 10) * 200), memoryUsed: each(() => 50),
      verdict: each((node) => ["eligible", "pdb", "price", "consolidate-after"][node % 4]), why: each(() => "because"), action: each((node) => (node === 0 ? 0 : -1)), cost: each((node) => node % 5), closing: each((node) => Number(node === 3)),
    },
    chains: each(() => [0]), checks: [{ gate: "managed", passed: true, why: "w", figures: "" }],
    pods: {
      name: Array.from({ length: pods }, (_, pod) => `web/pod-${pod}`), node: Array.from({ length: pods }, (_, pod) => Math.floor(pod / 3)),
      workload: Array.from({ length: pods }, (_, pod) => pod % 5), cpu: Array.from({ length: pods }, () => 100), memory: Array.from({ length: pods }, () => 10), moves: Array.from({ length: pods }, () => 1),
    },
    workloads: ["web/a", "web/b", "web/c", "web/d", "web/e"],
    actions: [{ action: "deleteEmpty", reason: "Empty", nodes: ["node-00000"], savings: 0.1, required: 0, pods: 0, replacements: [] }],
    after: { name: [], pool: [], zone: [], type: [], price: [], cpu: [], memory: [], cpuUsed: [], memoryUsed: [], isNew: [] },
    moves: [], remedies: {}, examples: [], budgets: [],
  };
}

const ALL = { text: "", gate: "", pool: "", workload: "", families: /** @type {Set<string>} */ (new Set()), sort: "name" };

test("nodes are filtered by words, check, pool, workload and kind of verdict", () => {
  const document = plan(40);
  const index = indexOf(document);
  /** @param {Partial<typeof ALL>} filter */
  const some = (filter) => chosenNodes(document, index, { ...ALL, ...filter });
  assert.equal(some({}).length, 40);
  assert.deepEqual(some({ text: "NODE-00007" }), [7]);
  assert.deepEqual(some({ text: "pod-21" }), [7]);
  assert.deepEqual(some({ text: "web/pod-21 spot" }), [7]);
  assert.deepEqual(some({ text: "pod-21 nothing" }), []);
  assert.deepEqual(some({ text: "closing" }), [3]);
  document.nodes.pool[5] = "";
  assert.deepEqual(some({ pool: NO_POOL }), [5]);
  assert.equal(some({ pool: "spot" }).length, 19);
  document.nodes.pool[5] = "spot";
  assert.ok(some({ gate: "pdb" }).every((node) => node % 4 === 1));
  assert.deepEqual(some({ gate: "taken now" }), [0]);
  assert.ok(some({ pool: "spot" }).every((node) => node % 2 === 1));
  assert.ok(some({ workload: "web/e" }).every((node) => index.podsOf[node].some((pod) => document.pods.workload[pod] === 4)));
  assert.ok(some({ families: new Set(["held"]) }).every((node) => node % 4 !== 1));
});

test("nodes are sorted by what was asked for, ties by name", () => {
  const document = plan(40);
  const index = indexOf(document);
  const first = (/** @type {string} */ sort) => chosenNodes(document, index, { ...ALL, sort });
  assert.equal(document.nodes.price[first("price")[0]], 0.6);
  assert.deepEqual(first("price").slice(0, 2), [6, 13]);
  assert.equal(first("age")[0], 39);
  assert.equal(fillOf(document.nodes, first("fill")[0]), 0.5);
  assert.equal(first("verdict")[0], 0);
});

test("five thousand nodes with fifteen thousand pods are searched by pod and sorted", () => {
  const document = plan(5000);
  const found = chosenNodes(document, indexOf(document), { ...ALL, text: "web/pod-1499", sort: "verdict" });
  assert.deepEqual([...found].sort((a, b) => a - b), [499, 4996, 4997, 4998, 4999]);
});

test("a pool's own remedy comes before that of the check", () => {
  const document = { ...plan(8), remedies: { "consolidate-after": "wait", "consolidate-after spot": "set a duration" } };
  assert.equal(remedyOf(document, 3), "set a duration");
  document.nodes.pool[7] = "other";
  assert.equal(remedyOf(document, 7), "wait");
  assert.equal(remedyOf(document, 2), undefined);
});

test("checks are counted, what goes first", () => {
  assert.deepEqual(gateCounts(plan(8)).map(([gate, { nodes }]) => [gate, nodes]), [["taken now", 1], ["consolidate-after", 2], ["pdb", 2], ["price", 2], ["eligible", 1]]);
});

test("every family has words and a letter of its own; an unknown check is held", () => {
  const letters = Object.values(FAMILIES).map((family) => family.letter);
  assert.equal(new Set(letters).size, letters.length);
  assert.equal(familyOf("eligible", 3), "goes");
  assert.equal(familyOf("eligible", -1), "ready");
  assert.equal(familyOf("restart-price", -1), "price");
  assert.equal(familyOf("some-new-gate", -1), "held");
});

test("the map has a place for every node, inside its width, and none on another", () => {
  for (const [size, width] of [[12, 340], [150, 1180], [5000, 1180]]) {
    const { nodes } = plan(size);
    const cells = nodes.name.map((name, index) => ({ index, name, zone: nodes.zone[index], pool: nodes.pool[index], cpu: 1, fill: 0.5, price: 1, family: "held", dim: false }));
    const { boxes, height } = arrange(cells, width);
    assert.equal(boxes.length, size);
    const taken = new Set();
    for (const box of boxes) {
      assert.ok(box.x >= 0 && box.x + box.width <= width + 1 && box.y + box.height <= height);
      taken.add(`${Math.round(box.x)},${Math.round(box.y)}`);
    }
    assert.equal(taken.size, size);
  }
});
