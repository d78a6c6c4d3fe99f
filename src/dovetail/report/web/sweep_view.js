// A sweep: every policy as a point, cost against disruption, and two of them moment by moment.

import { h, name, onLookChange, put, showTip, svg } from "./dom.js";
import { dollars, niceTicks } from "./format.js";
import { runView } from "./run_view.js";

/** @typedef {import("./types").SweepPoint} SweepPoint */

const HEIGHT_OF_FRONT = 380;

/**
 * @param {Element} root
 * @param {import("./types").SweepDocument} document
 */
export function sweepView(root, document) {
  const stage = h("div", { class: "front-stage" });
  const run = h("div");
  put(root,
    h("section", { class: "view", "aria-labelledby": "front-title" },
      h("h2", { id: "front-title" }, "Cost against disruption"),
      h("p", { class: "soft" }, "Each dot is a policy. Filled and joined: no other is both cheaper and calmer. The ringed one fits best."),
      stage),
    run);
  onLookChange(stage, () => put(stage, scatter(document.points, stage.clientWidth)));
  if (document.run !== null) runView(run, /** @type {any} */ (document.run));
}

/**
 * @param {SweepPoint[]} points
 * @param {number} width
 */
function scatter(points, width) {
  const left = 52;
  const right = 24;
  const bottom = 42;
  const top = 16;
  const ticksY = niceTicks(Math.max(...points.map((point) => point.podsDisrupted), 1));
  const low = Math.min(...points.map((point) => point.cost));
  const high = Math.max(...points.map((point) => point.cost));
  const extent = high - low || 1;
  const [from, to] = [low - extent * 0.06, high + extent * 0.06];
  const most = ticksY[ticksY.length - 1];
  /** @param {number} value */
  const x = (value) => left + ((value - from) / (to - from)) * (width - left - right);
  /** @param {number} value */
  const y = (value) => HEIGHT_OF_FRONT - bottom - (value / most) * (HEIGHT_OF_FRONT - top - bottom);
  const parts = ticksY.flatMap((tick) => [
    svg("path", { class: "grid", d: `M${left} ${y(tick)}H${width - right}` }),
    svg("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, tick.toLocaleString("en-US")),
  ]);
  const steps = Math.max(2, Math.floor(width / 160));
  const places = Math.min(6, Math.max(2, Math.ceil(-Math.log10((to - from) / steps)) + 1));
  for (let index = 0; index <= steps; index += 1) {
    const value = from + ((to - from) * index) / steps;
    parts.push(svg("text", { x: x(value), y: HEIGHT_OF_FRONT - bottom + 16, "text-anchor": index === 0 ? "start" : index === steps ? "end" : "middle" }, dollars(value, places)));
  }
  parts.push(svg("text", { x: (left + width - right) / 2, y: HEIGHT_OF_FRONT - 6, "text-anchor": "middle", class: "label" }, "cost of the run"));
  parts.push(svg("text", { x: left, y: 11, class: "label" }, "pod restarts"));
  const front = points.filter((point) => point.front).sort((a, b) => a.cost - b.cost || a.podsDisrupted - b.podsDisrupted);
  if (front.length > 1) parts.push(svg("path", { class: "line s1", d: `M${front.map((point) => `${x(point.cost)} ${y(point.podsDisrupted)}`).join("L")}` }));
  const ordered = [...points].sort((a, b) => Number(a.front) - Number(b.front) || Number(a.recommended) - Number(b.recommended));
  for (const point of ordered) {
    const label = `${point.policy}: ${dollars(point.cost, places)} ± ${point.costSpread.toFixed(places)}, ${point.podsDisrupted} ± ${point.podsDisruptedSpread} pod restarts`;
    const mark = svg("circle", {
      class: point.front ? "front" : "hollow", cx: x(point.cost), cy: y(point.podsDisrupted), r: point.recommended ? 8 : 5,
      tabindex: point.front ? 0 : null, role: "img", "aria-label": label,
    });
    mark.addEventListener("pointermove", (event) => showTip({ x: event.clientX, y: event.clientY }, h("strong", null, name(point.policy)), h("div", null, label.slice(point.policy.length + 2))));
    mark.addEventListener("pointerleave", () => showTip(null));
    if (point.recommended) parts.push(svg("circle", { class: "ring", cx: x(point.cost), cy: y(point.podsDisrupted), r: 13 }));
    parts.push(mark);
    if (point.recommended) {
      const half = 3.7 * point.policy.length;
      const middle = Math.max(half, Math.min(width - half, x(point.cost)));
      parts.push(svg("text", { class: "label strong", x: middle, y: y(point.podsDisrupted) + 30, "text-anchor": "middle" }, point.policy));
    }
  }
  return svg("svg", { width, height: HEIGHT_OF_FRONT, role: "group", "aria-label": "Policies by cost and pod restarts" }, parts);
}
