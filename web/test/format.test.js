import assert from "node:assert/strict";
import { test } from "node:test";

import { clock, count, dollars, lastAt, listing, memory, niceTicks, percent, span, timeTicks } from "../../src/dovetail/report/web/format.js";

test("a length of time is told in its two largest units", () => {
  /** @type {[number, string][]} */
  const cases = [[0, "0s"], [59, "59s"], [60, "1m"], [845, "14m5s"], [3600, "1h"], [7500, "2h5m"], [273600, "3d4h"], [-90, "-1m30s"]];
  for (const [seconds, text] of cases) assert.equal(span(seconds), text);
});

test("money, counts, lists, shares and bytes are told as on the command line", () => {
  assert.equal(dollars(1234.5), "$1,234.50");
  assert.equal(dollars(-0.0064, 4), "-$0.0064");
  assert.equal(count(1, "node"), "1 node");
  assert.equal(count(2000, "policy", "policies"), "2,000 policies");
  assert.equal(listing([]), "");
  assert.equal(listing(["a"]), "a");
  assert.equal(listing(["a", "b", "c"]), "a, b and c");
  assert.equal(listing(["a", "b", "c", "d"], 2), "a, b and 2 more");
  assert.equal(percent(0.256), "26 %");
  assert.equal(memory(8 * 2 ** 30), "8 GiB");
  assert.equal(memory(12), "12 B");
});

test("the clock counts from the start, over midnight too", () => {
  assert.equal(clock("2026-01-05T18:15:00+00:00", 15, true), "18:15:15");
  assert.equal(clock("2026-01-05T18:15:00Z", 6 * 3600), "00:15");
});

test("ticks are even, rise, and reach the top", () => {
  assert.deepEqual(niceTicks(0), [0, 1]);
  for (const top of [0.003, 0.7, 1, 9, 17, 99, 173, 12345]) {
    const ticks = niceTicks(top);
    assert.equal(ticks[0], 0);
    assert.ok(ticks[ticks.length - 1] >= top, `${top}: ${ticks}`);
    assert.ok(ticks.length >= 3 && ticks.length <= 7, `${top}: ${ticks}`);
  }
  assert.deepEqual(timeTicks(0, 3600, 6), [0, 600, 1200, 1800, 2400, 3000, 3600]);
  assert.ok(timeTicks(17, 86400 * 3, 8).length <= 9);
});

test("the last value at a time is found", () => {
  const values = [0, 10, 20, 30];
  assert.equal(lastAt(values, -1), -1);
  assert.equal(lastAt(values, 0), 0);
  assert.equal(lastAt(values, 19.9), 1);
  assert.equal(lastAt(values, 1000), 3);
  assert.equal(lastAt([], 5), -1);
});
