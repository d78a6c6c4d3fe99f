// The page of a plan: the cluster at a glance, before and after; search, sort, filter; a node opens into everything known of it.

import { h, name, put, showTip } from "./dom.js";
import { FAMILIES } from "./families.js";
import { actionWords, count, dollars, monthly, percent, span } from "./format.js";
import { nodeDetails } from "./node_details.js";
import { nodeMap } from "./node_map.js";
import { nodeTable } from "./node_table.js";
import { NO_POOL, chosenNodes, fillOf, gateCounts, indexOf } from "./plan_state.js";

/**
 * @typedef {import("./types").PlanDocument} PlanDocument
 * @typedef {import("./plan_state.js").Filter} Filter
 */

const SORTS = [["verdict", "verdict"], ["name", "name"], ["price", "dearest first"], ["fill", "emptiest first"], ["age", "oldest first"], ["pods", "fewest pods first"], ["cost", "least disruption first"]];

/**
 * @param {Element} root
 * @param {PlanDocument} first
 * @param {((node: string) => Promise<import("./node_details.js").Asked>) | null} [ask]
 */
export function planView(root, first, ask = null) {
  let document = first;
  let index = indexOf(document);
  /** @type {Filter} */
  let filter = { text: "", gate: "", pool: "", workload: "", families: new Set(), sort: "verdict" };
  let after = false;
  /** @type {string | null} */
  let picked = null;
  /** @type {Set<number>} */
  let passing = new Set();

  const shown = h("p", { class: "soft", role: "status" });
  const search = h("input", { type: "search", placeholder: "node, pod, workload, type, zone …", "aria-label": "Search", class: "search", oninput: () => change({ text: search.value }) });
  const gate = picker("Check", (value) => change({ gate: value }));
  const pool = picker("Pool", (value) => change({ pool: value }));
  const workload = picker("Workload", (value) => change({ workload: value }));
  const sort = picker("Sort", (value) => change({ sort: value }));
  const clear = h("button", { type: "button", onclick: () => {
    search.value = "";
    for (const select of [gate, pool, workload]) select.value = "";
    change({ text: "", gate: "", pool: "", workload: "", families: new Set() });
  } }, "clear");
  const legend = h("div", { class: "legend", role: "group", "aria-label": "Verdicts" });
  const panel = h("aside", { class: "details", "aria-label": "Node details", hidden: true });
  panel.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
  });
  const table = nodeTable((node) => open(node));
  const before = h("button", { type: "button", "aria-pressed": "true", onclick: () => setAfter(false) }, "now");
  const then = h("button", { type: "button", "aria-pressed": "false", onclick: () => setAfter(true) }, "after this round");
  const totals = h("p", { class: "totals" });
  const map = nodeMap({
    label: "Nodes by zone and pool",
    cells: () => (after ? cellsAfter() : cellsNow()),
    onHover: (cell, event) => showTip(cell ? { x: event.clientX, y: event.clientY } : null, cell ? tipOf(cell) : []),
    onPick: (cell) => {
      if (!after) open(cell.name);
    },
    picked: () => picked,
  });

  /** @param {import("./node_map.js").Cell} cell */
  const tipOf = (cell) => {
    const { nodes } = document;
    const why = after ? "" : nodes.why[cell.index];
    return [
      h("strong", null, name(cell.name)),
      h("div", null, `${percent(cell.fill)} full, ${cell.price < 0 ? "price unknown" : `${dollars(cell.price, 4)} per hour`}${after ? "" : `, ${nodes.age[cell.index] < 0 ? "age unknown" : `${span(nodes.age[cell.index])} old`}`}`),
      after ? null : h("div", null, h("b", null, nodes.action[cell.index] >= 0 ? actionWords(document.actions[nodes.action[cell.index]].action) : nodes.verdict[cell.index]), " ", name(why)),
    ];
  };

  const cellsNow = () => {
    const { nodes } = document;
    return nodes.name.map((text, node) => ({
      index: node, name: text, zone: nodes.zone[node], pool: nodes.pool[node], cpu: nodes.cpu[node], fill: fillOf(nodes, node),
      price: nodes.price[node], family: index.family[node], dim: !passing.has(node),
    }));
  };
  const cellsAfter = () => {
    const nodes = document.after;
    return nodes.name.map((text, node) => ({
      index: node, name: text, zone: nodes.zone[node], pool: nodes.pool[node], cpu: nodes.cpu[node], fill: fillOf(nodes, node),
      price: nodes.price[node], family: nodes.isNew[node] ? "ready" : "settled", dim: false,
    }));
  };

  /** @param {boolean} value */
  const setAfter = (value) => {
    after = value;
    before.setAttribute("aria-pressed", String(!value));
    then.setAttribute("aria-pressed", String(value));
    map.redraw();
  };

  /** @param {Partial<Filter>} changes */
  const change = (changes) => {
    filter = { ...filter, ...changes };
    table.top();
    refresh();
  };

  const refresh = () => {
    const rows = chosenNodes(document, index, filter);
    passing = new Set(rows);
    table.show(document, index, rows, picked);
    put(shown, rows.length === document.nodes.name.length ? `All ${count(rows.length, "node")}.` : `${count(rows.length, "node")} of ${document.nodes.name.length.toLocaleString("en-US")}.`);
    for (const chip of legend.querySelectorAll("button")) chip.setAttribute("aria-pressed", String(!filter.families.has(chip.dataset.family ?? "")));
    map.redraw();
  };

  /** @param {string} node */
  const open = (node) => {
    picked = node;
    showPicked();
    refresh();
  };
  const showPicked = () => {
    const place = picked === null ? -1 : document.nodes.name.indexOf(picked);
    panel.hidden = place < 0;
    if (place >= 0) nodeDetails(panel, document, index, place, close, ask);
  };
  const close = () => {
    picked = null;
    panel.hidden = true;
    refresh();
    search.focus({ preventScroll: true });
  };

  const fillPickers = () => {
    options(gate, [["", "every check"], ...gateCounts(document).map(([key, { nodes }]) => [key, `${key} (${nodes})`])], filter.gate);
    options(pool, [["", "every pool"], ...[...new Set(document.nodes.pool)].sort().map((key) => (key ? [key, key] : [NO_POOL, "no pool"]))], filter.pool);
    options(workload, [["", "every workload"], ...[...document.workloads].sort().map((key) => [key, key])], filter.workload);
    options(sort, SORTS, filter.sort);
    const present = new Set(index.family);
    put(legend, Object.keys(FAMILIES).filter((key) => present.has(key)).map((key) => {
      const family = FAMILIES[key];
      const swatch = h("i", { class: "swatch" }, family.letter);
      swatch.style.background = `var(${family.colour})`;
      if (key === "settled") swatch.style.color = "var(--f-kept-ink)";
      const amount = index.family.filter((entry) => entry === key).length;
      return h("button", { type: "button", class: "chip", "data-family": key, "aria-pressed": "true", onclick: () => {
        const families = new Set(filter.families);
        if (!families.delete(key)) families.add(key);
        change({ families });
      } }, swatch, `${family.label} (${amount})`);
    }));
    const now = document.nodes.price.reduce((sum, price) => sum + Math.max(0, price), 0);
    const later = document.after.price.reduce((sum, price) => sum + Math.max(0, price), 0);
    const next = document.actions.length ? `${document.after.name.length.toLocaleString("en-US")}, ${dollars(later)} per hour after this round` : "this round changes nothing";
    put(totals, `${count(document.nodes.name.length, "node")}, ${dollars(now)} per hour (${monthly(now)} a month) now; ${next}.`);
  };

  put(root,
    h("section", { class: "view", "aria-labelledby": "map-title" },
      h("div", { class: "section-head" }, h("h2", { id: "map-title" }, "The cluster at a glance"), h("div", { class: "segmented", role: "group", "aria-label": "Before or after" }, before, then)),
      totals,
      h("p", { class: "soft" }, "Each cell is a node, filled as far as its pods fill it, coloured by what holds it.", h("span", { class: "screen" }, " Click one to open it.")),
      legend,
      map.element));
  const below = window.document.getElementById("nodes");
  const list =
    h("section", { class: "view", "aria-labelledby": "nodes-title" },
      h("h2", { id: "nodes-title" }, "Every node, and why"),
      h("div", { class: "filters", role: "search" }, search, gate, pool, workload, sort, clear),
      shown,
      h("div", { class: "table-and-details" }, table.element, panel));
  if (below) put(below, list);
  else root.append(list);
  fillPickers();
  refresh();
  return {
    /** @param {PlanDocument} next */
    update(next) {
      document = next;
      index = indexOf(document);
      fillPickers();
      refresh();
    },
    open,
  };
}

/**
 * @param {string} label
 * @param {(value: string) => void} onChange
 */
function picker(label, onChange) {
  const select = h("select", { "aria-label": label, onchange: () => onChange(select.value) });
  return select;
}

/**
 * @param {HTMLSelectElement} select
 * @param {string[][]} entries
 * @param {string} value
 */
function options(select, entries, value) {
  put(select, entries.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
}
