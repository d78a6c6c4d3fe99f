// A table of thousands of rows of which only those in sight exist.

import { h, name, put, throttled } from "./dom.js";
import { FAMILIES } from "./families.js";
import { actionWords, dollars, percent, span } from "./format.js";
import { fillOf } from "./plan_state.js";

const ROW = 38;
const AROUND = 8;
const PRINTED_MAX = 1000;

/**
 * @typedef {import("./types").PlanDocument} PlanDocument
 * @typedef {import("./plan_state.js").Index} Index
 */

/**
 * @param {(node: string) => void} onPick
 */
export function nodeTable(onPick) {
  const body = h("div", { class: "rows-space" });
  const scroller = h("div", { class: "rows", tabindex: 0, role: "rowgroup" }, body);
  const head = h("div", { class: "row head", role: "row" }, ["node", "verdict", "fill", "pods", "price", "age", "why"].map((title) => h("span", { role: "columnheader", class: `c-${title}` }, title)));
  const table = h("div", { class: "node-table", role: "table", "aria-label": "Nodes" }, h("div", { role: "rowgroup" }, head), scroller);
  /** @type {{document: PlanDocument, index: Index, rows: number[], picked: string | null} | null} */
  let shown = null;
  const page = window.document.documentElement;

  const draw = () => {
    if (!shown) return;
    const { document, index, rows, picked } = shown;
    const paper = page.hasAttribute("data-paper");
    const first = paper ? 0 : Math.max(0, Math.floor(scroller.scrollTop / ROW) - AROUND);
    const last = Math.min(rows.length, paper ? PRINTED_MAX : Math.ceil((scroller.scrollTop + scroller.clientHeight) / ROW) + AROUND);
    const held = body.contains(window.document.activeElement) ? window.document.activeElement?.getAttribute("data-node") : null;
    body.style.height = `${rows.length * ROW}px`;
    put(body, rows.slice(first, last).map((node, place) => row(document, index, node, first + place, picked)));
    if (held) /** @type {HTMLElement | null} */ (body.querySelector(`[data-node="${CSS.escape(held)}"]`))?.focus({ preventScroll: true });
  };

  /**
   * @param {PlanDocument} document
   * @param {Index} index
   * @param {number} node
   * @param {number} place
   * @param {string | null} picked
   */
  const row = (document, index, node, place, picked) => {
    const { nodes } = document;
    const family = FAMILIES[index.family[node]];
    const swatch = h("i", { class: "swatch", "aria-hidden": "true" }, family.letter);
    swatch.style.background = `var(${family.colour})`;
    if (index.family[node] === "settled") swatch.style.color = "var(--f-kept-ink)";
    const fill = fillOf(nodes, node);
    const bar = h("i", { class: "bar" });
    bar.style.width = percent(Math.min(1, fill)).replace(" ", "");
    const verdict = nodes.action[node] >= 0 ? actionWords(document.actions[nodes.action[node]].action) : nodes.verdict[node];
    const element = h("div", { class: `row${nodes.name[node] === picked ? " picked" : ""}`, role: "row", "aria-rowindex": place + 2 },
      h("span", { role: "cell", class: "c-node" }, h("button", { type: "button", class: "link", "data-node": nodes.name[node], onclick: () => onPick(nodes.name[node]) }, name(nodes.name[node])),
        h("span", { class: "sub" }, name([nodes.pool[node], nodes.zone[node], nodes.type[node]].filter(Boolean).join(" · ")))),
      h("span", { role: "cell", class: "c-verdict" }, swatch, h("span", null, verdict), nodes.closing[node] ? h("span", { class: "pill" }, "closing") : null),
      h("span", { role: "cell", class: "c-fill" }, h("span", { class: "bar-box" }, bar), h("span", { class: "bar-value" }, percent(fill))),
      h("span", { role: "cell", class: "c-pods" }, index.podsOf[node].length),
      h("span", { role: "cell", class: "c-price" }, nodes.price[node] < 0 ? "unknown" : dollars(nodes.price[node], 4)),
      h("span", { role: "cell", class: "c-age" }, nodes.age[node] < 0 ? "–" : span(nodes.age[node])),
      h("span", { role: "cell", class: "c-why" }, name(nodes.why[node])));
    element.style.transform = `translateY(${place * ROW}px)`;
    return element;
  };

  scroller.addEventListener("scroll", throttled(draw), { passive: true });
  new ResizeObserver(throttled(draw)).observe(scroller);
  page.addEventListener("paperchange", draw);
  return {
    element: table,
    /**
     * @param {PlanDocument} document
     * @param {Index} index
     * @param {number[]} rows
     * @param {string | null} picked
     */
    show(document, index, rows, picked) {
      shown = { document, index, rows, picked };
      table.setAttribute("aria-rowcount", String(rows.length + 1));
      scroller.style.height = `${Math.min(rows.length * ROW + 2, 560)}px`;
      draw();
    },
    top() {
      scroller.scrollTop = 0;
    },
  };
}
