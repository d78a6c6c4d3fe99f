// The visual language of nodes: what became of one, its colour, its letter, its words. Colour is never the only signal.

/** @typedef {{label: string, letter: string, colour: string, ink: string}} Fate */

/** @type {Record<string, Fate>} */
export const FATES = {
  kept: { label: "still running", letter: "", colour: "--f-kept", ink: "--f-kept-ink" },
  cost: { label: "drained for cost", letter: "$", colour: "--f-cost", ink: "--f-ink" },
  drifted: { label: "drained for drift", letter: "D", colour: "--f-drifted", ink: "--f-ink" },
  expired: { label: "expired", letter: "E", colour: "--f-expired", ink: "--f-ink" },
  empty: { label: "removed empty", letter: "0", colour: "--f-empty", ink: "--f-ink" },
  unhealthy: { label: "repaired", letter: "U", colour: "--f-died", ink: "--f-ink" },
  interrupted: { label: "interrupted by the cloud", letter: "!", colour: "--f-interrupted", ink: "--f-ink" },
  died: { label: "died", letter: "×", colour: "--f-died", ink: "--f-ink" },
  removed: { label: "removed", letter: "–", colour: "--f-removed", ink: "--f-ink" },
};

/**
 * @param {string} fate
 * @returns {Fate}
 */
export function fateOf(fate) {
  return FATES[fate] ?? FATES.removed;
}

/**
 * The fate that a command's reason stands for.
 * @param {string} reason
 */
export function fateOfReason(reason) {
  return { Empty: "empty", Expired: "expired", Drifted: "drifted", Underutilized: "cost", Unhealthy: "unhealthy" }[reason] ?? "removed";
}

/**
 * A steady hue for a workload's name.
 * @param {string} text
 */
export function hueOf(text) {
  let hash = 2166136261;
  for (let index = 0; index < text.length; index += 1) {
    hash ^= text.charCodeAt(index);
    hash = Math.imul(hash, 16777619);
  }
  return ((hash >>> 0) % 24) * 15;
}
