// What a verdict means to a person, in seven kinds; each has a colour and a letter.

/** @typedef {{label: string, letter: string, colour: string}} Family */

/** @type {Record<string, Family>} */
export const FAMILIES = {
  goes: { label: "would go now", letter: "▸", colour: "--f-cost" },
  ready: { label: "could go in a later round", letter: "✓", colour: "--f-empty" },
  waits: { label: "waits for time or a budget", letter: "◷", colour: "--f-drifted" },
  held: { label: "held by a rule or a person", letter: "■", colour: "--f-expired" },
  unfit: { label: "its pods fit nowhere else", letter: "≠", colour: "--f-interrupted" },
  price: { label: "not worth the money", letter: "$", colour: "--f-removed" },
  settled: { label: "nothing to do", letter: "·", colour: "--f-kept" },
};

/** @type {Record<string, string>} */
const OF_GATE = {
  eligible: "ready",
  "consolidate-after": "waits", "grace-period": "waits", "min-node-age": "waits", stabilization: "waits", "back-off": "waits", budget: "waits",
  "topology-budget": "waits", window: "waits", "pod-window": "waits", nominated: "waits", initialized: "waits", "marked-for-deletion": "waits",
  "uninitialized-destination": "waits", waste: "waits", rebooting: "waits",
  simulation: "unfit", "new-nodes": "unfit", "capacity-buffer": "unfit", "dynamic-resources": "unfit",
  price: "price", "savings-threshold": "price", "same-type": "price", "spot-to-spot": "price", "spot-flexibility": "price", "min-values": "price",
  balanced: "price", "restart-price": "price", "instance-type-known": "price",
  "not-empty": "settled", "not-expired": "settled", "not-drifted": "settled", "not-unhealthy": "settled",
};

/**
 * @param {string} verdict
 * @param {number} action
 */
export function familyOf(verdict, action) {
  return action >= 0 ? "goes" : (OF_GATE[verdict] ?? "held");
}
