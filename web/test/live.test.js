import assert from "node:assert/strict";
import { test } from "node:test";

import { mergeReasons } from "../../src/dovetail/report/web/live_view.js";

const open = { begin: "2026-01-05T00:00:00Z", end: "2026-01-12T00:00:00Z", allowed: 3 };
const shut = { ...open, allowed: 0 };

test("reasons with the same allowances share a row of the calendar", () => {
  assert.deepEqual(mergeReasons([{ reason: "Empty", stretches: [open] }, { reason: "Drifted", stretches: [open] }]), [{ reasons: ["every reason"], stretches: [open] }]);
  assert.deepEqual(mergeReasons([{ reason: "Empty", stretches: [open] }, { reason: "Drifted", stretches: [shut] }, { reason: "Expired", stretches: [open] }]), [
    { reasons: ["Empty", "Expired"], stretches: [open] },
    { reasons: ["Drifted"], stretches: [shut] },
  ]);
});
