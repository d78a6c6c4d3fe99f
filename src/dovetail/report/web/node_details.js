// One node opened: every check, its pods, where they would go, what would change the verdict.

import { h, name, put } from "./dom.js";
import { FAMILIES } from "./families.js";
import { actionWords, count, dollars, memory, percent, span } from "./format.js";
import { remedyOf } from "./plan_state.js";

/**
 * @typedef {import("./types").PlanDocument} PlanDocument
 * @typedef {import("./plan_state.js").Index} Index
 * @typedef {{moves: import("./types").Moves | null, changes: import("./types").Change[], gone?: boolean}} Asked
 */

/**
 * @param {Element} panel
 * @param {PlanDocument} document
 * @param {Index} index
 * @param {number} node
 * @param {() => void} onClose
 * @param {((node: string) => Promise<Asked>) | null} ask asks the server; null on a page that was mailed
 */
export function nodeDetails(panel, document, index, node, onClose, ask) {
  const { nodes } = document;
  const family = FAMILIES[index.family[node]];
  const swatch = h("i", { class: "swatch" }, family.letter);
  swatch.style.background = `var(${family.colour})`;
  const action = document.actions[nodes.action[node]];
  const heading = h("h3", { tabindex: -1 }, name(nodes.name[node]));
  const later = h("div");
  const facts = [
    ["pool", nodes.pool[node] || "none"], ["zone", nodes.zone[node] || "unknown"],
    ["type", `${nodes.type[node] || "unknown"}, ${nodes.capacityType[node] || "unknown"}`],
    ["price", nodes.price[node] < 0 ? "unknown" : `${dollars(nodes.price[node], 4)} per hour`],
    ["age", nodes.age[node] < 0 ? "unknown" : span(nodes.age[node])],
    ["CPU", `${percent(nodes.cpuUsed[node] / Math.max(1, nodes.cpu[node]))} of ${nodes.cpu[node] / 1000}`],
    ["memory", `${percent(nodes.memoryUsed[node] / Math.max(1, nodes.memory[node]))} of ${memory(nodes.memory[node])}`],
    ["disruption cost", String(nodes.cost[node])],
  ];
  put(panel,
    h("button", { type: "button", class: "close", "aria-label": "Close", onclick: onClose }, "×"),
    heading,
    h("p", { class: "verdict" }, swatch, h("strong", null, action ? actionWords(action.action) : nodes.verdict[node]), h("span", null, name(nodes.why[node]))),
    nodes.closing[node] ? h("p", null, "It is closing: new pods prefer other nodes, so that it empties by itself.") : null,
    action ? h("p", null, `Saves ${dollars(action.savings, 4)} per hour${action.required ? ` (${dollars(action.required, 4)} asked for)` : ""}, together with ${count(action.nodes.length - 1, "other node")}; ${count(action.pods, "pod")} would restart.`) : null,
    h("dl", { class: "facts" }, facts.map(([key, value]) => [h("dt", null, key), h("dd", null, name(value))]).flat()),
    h("h4", null, "Every check"),
    h("ol", { class: "checks" }, document.chains[node].map((place) => {
      const check = document.checks[place];
      return h("li", { class: check.passed ? "pass" : "stop" },
        h("span", { class: "mark", "aria-label": check.passed ? "passed" : "stopped", role: "img" }, check.passed ? "✓" : "✗"),
        h("div", null, h("code", null, check.gate), " ", h("span", null, name(check.why)), check.figures ? h("div", { class: "soft figures" }, name(check.figures)) : null));
    })),
    later,
    podList(document, index, node));
  showAsked(later, document, node, known(document, node), ask !== null);
  if (ask) {
    ask(nodes.name[node]).then((asked) => showAsked(later, document, node, asked, false), () => put(later, h("p", { class: "soft" }, "The server gave no answer; try again.")));
  }
  heading.focus({ preventScroll: true });
}

/**
 * What the page itself knows of where pods go and what would change the verdict.
 * @param {PlanDocument} document
 * @param {number} node
 * @returns {Asked & {example?: string}}
 */
function known(document, node) {
  const { nodes } = document;
  const moves = document.moves.find((entry) => entry.node === nodes.name[node]) ?? null;
  const own = document.examples.find((entry) => entry.node === nodes.name[node]);
  const like = own ?? document.examples.find((entry) => entry.verdict === nodes.verdict[node] && entry.pool === nodes.pool[node]);
  return { moves, changes: like ? like.changes : [], example: like && like !== own ? like.node : undefined };
}

/**
 * @param {Element} place
 * @param {PlanDocument} document
 * @param {number} node
 * @param {Asked & {example?: string}} asked
 * @param {boolean} waiting
 */
function showAsked(place, document, node, asked, waiting) {
  const { nodes } = document;
  const remedy = remedyOf(document, node);
  const stays = nodes.action[node] < 0 && nodes.verdict[node] !== "eligible";
  if (asked.gone) {
    put(place, h("p", { class: "soft" }, "The node is gone by now."));
    return;
  }
  put(place,
    h("h4", null, "Where its pods would go"),
    waiting ? h("p", { class: "soft" }, "asking …") : asked.moves === null
      ? h("p", { class: "soft" }, document.pods.node.some((of, pod) => of === node && document.pods.moves[pod]) ? "Not worked out on this page." : "It has no pod that would have to move.")
      : [
        h("ul", { class: "moves" }, asked.moves.to.map((to) => h("li", null, h("strong", null, name(to.node)), ` takes ${count(to.pods.length, "pod")}: `, name(to.pods.slice(0, 6).join(", ")), to.pods.length > 6 ? ` and ${to.pods.length - 6} more` : ""))),
        ...asked.moves.stuck.map((text) => h("p", { class: "bad" }, name(text))),
      ],
    stays ? [
      h("h4", null, "What would change it"),
      waiting ? h("p", { class: "soft" }, "asking …") : null,
      asked.example ? h("p", { class: "soft" }, "Tried for ", name(asked.example), ", which stops at the same check of the same pool:") : null,
      asked.changes.length ? h("ul", { class: "changes" }, asked.changes.map((change) => h("li", { class: change.opens ? "opens" : "" }, h("strong", null, name(change.if)), ": ", name(change.then)))) : null,
      !waiting && asked.changes.length === 0 ? h("p", null, remedy ? `First thing to change: ${remedy}.` : "No setting changes this. It changes when pods or prices change.") : null,
    ] : null);
}

/**
 * @param {PlanDocument} document
 * @param {Index} index
 * @param {number} node
 */
function podList(document, index, node) {
  const { pods, workloads } = document;
  const all = [...index.podsOf[node]].sort((a, b) => pods.cpu[b] - pods.cpu[a] || (pods.name[a] < pods.name[b] ? -1 : 1));
  return [
    h("h4", null, count(all.length, "pod")),
    h("ul", { class: "pod-list" }, all.slice(0, 60).map((pod) => h("li", null, name(pods.name[pod]),
      h("span", { class: "soft" }, ` ${pods.cpu[pod]}m, ${memory(pods.memory[pod])}${pods.moves[pod] ? "" : ", stays with its node"}, ${workloads[pods.workload[pod]]}`)))),
    all.length > 60 ? h("p", { class: "soft" }, `and ${all.length - 60} more`) : null,
  ];
}
