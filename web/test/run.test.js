import assert from "node:assert/strict";
import { test } from "node:test";

import { isThere, momentOf, staysByMachine } from "../../src/dovetail/report/web/cluster.js";
import { FATES, fateOf, fateOfReason, hueOf } from "../../src/dovetail/report/web/fates.js";
import { layOut, marksOf, sentenceOf } from "../../src/dovetail/report/web/lanes.js";
import { soFar, stepPath } from "../../src/dovetail/report/web/plots.js";
import { firstMoment, lastMoment } from "../../src/dovetail/report/web/run_view.js";
import { createState } from "../../src/dovetail/report/web/state.js";

/** @returns {import("../../src/dovetail/report/web/types").PolicyRun} */
function run() {
  return {
    name: "p",
    figures: { podsDisrupted: 2, podsDisruptedMoreThanOnce: 0, nodesStarted: 1, shortLivedNodes: 1, nodeHours: 1, cost: 1, pendingPodSeconds: 0, violations: 0 },
    series: { seconds: [0, 60], nodes: [2, 3], costPerHour: [1, 2], pods: [2, 2], pending: [0, 0], podsDisrupted: [0, 2], gates: {} },
    machines: {
      name: ["a", "b", "c"], pool: ["x", "x", "x"], zone: ["z1", "z2", "z1"], type: ["t", "t", "t"], capacityType: ["spot", "spot", "spot"],
      price: [1, 2, 4], cpu: [1000, 1000, 1000], memory: [1, 1, 1], started: [-100, -50, 30], leaving: [20, -1, -1], ended: [50, -1, -1],
      fate: ["cost", "kept", "kept"], command: [0, -1, -1],
    },
    workloads: { name: ["w"], cpu: [100], memory: [1], daemon: [0] },
    stays: { workload: [0, 0, 0], machine: [0, 1, -1], created: [0, 0, 40], began: [0, 0, -1], ended: [45, -1, -1], moved: [1, 0, 0] },
    commands: [{ at: 20, ended: 50, outcome: "done", action: "replaceCost", reason: "Underutilized", nodes: ["a"], replacements: ["c"], pods: 1, savings: 1, required: 0, why: "because" }],
    outside: [],
  };
}

test("lanes are grouped by zone and pool, in order of launch", () => {
  const groups = layOut(run().machines);
  assert.deepEqual(groups.map((group) => group.label), ["z1 · x · 2 nodes", "z2 · x · 1 node"]);
  assert.deepEqual(groups[0].rows, [[0], [2]]);
});

test("many nodes share rows, but never at the same time", () => {
  const many = run().machines;
  const size = 200;
  for (const key of /** @type {(keyof typeof many)[]} */ (Object.keys(many))) many[key] = /** @type {any} */ (Array.from({ length: size }, () => many[key][0]));
  many.name = many.name.map((_, index) => `n${index}`);
  many.started = many.started.map((_, index) => index * 10);
  many.ended = many.started.map((at) => at + 35);
  const rows = layOut(many).flatMap((group) => group.rows);
  assert.ok(rows.length < 10, String(rows.length));
  assert.equal(rows.flat().length, size);
  for (const row of rows) {
    for (let place = 1; place < row.length; place += 1) assert.ok(many.ended[row[place - 1]] <= many.started[row[place]]);
  }
});

test("a moment counts what is there, what leaves, what waits and what was moved", () => {
  assert.deepEqual(momentOf(run(), 10), { nodes: 2, cost: 3, leaving: 0, waiting: 0, moved: 0 });
  assert.deepEqual(momentOf(run(), 42), { nodes: 3, cost: 7, leaving: 1, waiting: 1, moved: 0 });
  assert.deepEqual(momentOf(run(), 60), { nodes: 2, cost: 6, leaving: 0, waiting: 1, moved: 1 });
  assert.deepEqual(staysByMachine(run()), [[0], [1], []]);
  assert.equal(isThere(0, -1, 5), true);
  assert.equal(isThere(0, 5, 5), false);
});

test("marks are the times at which pods had to leave", () => {
  assert.deepEqual(marksOf(run()), { 0: [45] });
});

test("a node's life is told in a sentence", () => {
  assert.equal(sentenceOf(run(), 0, "2026-01-05T18:00:00Z"), "a, t in z1: there before the start, drained for cost at 18:00:50, after 2m30s.");
  assert.match(sentenceOf(run(), 2, "2026-01-05T18:00:00Z"), /launched 18:00:30, still running at the end/);
});

test("every fate has words, a colour and, if it ended, a letter of its own", () => {
  const letters = Object.entries(FATES).filter(([fate]) => fate !== "kept").map(([, { letter }]) => letter);
  assert.equal(new Set(letters).size, letters.length);
  assert.ok(letters.every(Boolean));
  assert.equal(fateOf("something new").label, "removed");
  assert.equal(fateOfReason("Drifted"), "drifted");
  assert.equal(hueOf("app-1"), hueOf("app-1"));
});

test("a line holds its value until the next, within what is shown", () => {
  const line = { name: "l", colour: 0, seconds: [0, 10, 20], values: [1, 3, 2] };
  const same = (/** @type {number} */ value) => value;
  assert.equal(stepPath(line, 0, 30, same, same), "M0.0 1.0H10.0V3.0H20.0V2.0H30.0");
  assert.equal(stepPath(line, 12, 15, same, same), "M12.0 3.0H15.0");
  assert.deepEqual(soFar([1, 0, 2]), [1, 1, 3]);
});

test("the page opens at the busiest moment and shows what happens", () => {
  const one = /** @type {any} */ ({ policies: [run()], compare: [0], seconds: 10000 });
  assert.equal(firstMoment(one), 20);
  assert.equal(lastMoment({ ...one, seconds: 60 }), 60);
  assert.ok(lastMoment({ ...one, policies: [{ ...run(), machines: { ...run().machines, ended: [1000, -1, -1] } }] }) < 2000);
});

test("listeners hear of what changed, and only then", () => {
  const state = createState({ a: 1, b: 2 });
  /** @type {string[]} */
  const heard = [];
  state.listen((_, changed) => heard.push([...changed].join()));
  state.set({ a: 1 });
  state.set({ a: 2 });
  state.set({ a: 3, b: 3 });
  assert.deepEqual(heard, ["a", "a,b"]);
});
