// Line plots that share one time axis: hover values, zoom by dragging, series that can be switched off.

import { h, name, onLookChange, put, svg, throttled } from "./dom.js";
import { clock, lastAt, niceTicks, timeTicks } from "./format.js";

/**
 * @typedef {import("./run_view.js").RunState} RunState
 * @typedef {{name: string, colour: number, seconds: number[], values: number[]}} Line
 */

const LEFT = 46;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 22;
const HEIGHT = 170;
export const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2"];

/**
 * @param {object} options
 * @param {string} options.title
 * @param {string} options.says
 * @param {Line[]} options.lines
 * @param {(value: number) => string} options.format
 * @param {import("./state.js").State<RunState>} options.state
 * @param {number} options.seconds
 * @param {string} options.start
 * @returns {HTMLElement}
 */
export function plot({ title, says, lines, format, state, seconds, start }) {
  const values = h("p", { class: "values" });
  const stage = h("div", { class: "plot-stage" });
  let width = 0;
  /** @type {number | null} */
  let dragFrom = null;
  let dragTo = 0;

  /** @param {number} at */
  const x = (at) => LEFT + ((at - state.now.from) / (state.now.to - state.now.from)) * (width - LEFT - RIGHT);
  /** @param {number} px */
  const timeAt = (px) => {
    const share = Math.min(1, Math.max(0, (px - LEFT) / (width - LEFT - RIGHT)));
    return state.now.from + share * (state.now.to - state.now.from);
  };

  const shown = () => lines.filter((line) => !state.now.hidden.has(line.name));

  const draw = () => {
    width = stage.clientWidth;
    if (width === 0) return;
    const { from, to } = state.now;
    const visible = shown();
    const top = Math.max(0, ...visible.map((line) => largest(line, from, to)));
    const ticks = niceTicks(top);
    const most = ticks[ticks.length - 1];
    /** @param {number} value */
    const y = (value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - TOP - BOTTOM);
    const parts = ticks.map((tick) => [
      svg("path", { class: "grid", d: `M${LEFT} ${y(tick)}H${width - RIGHT}` }),
      svg("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, format(tick)),
    ]).flat();
    for (const tick of timeTicks(from, to, Math.max(3, Math.floor(width / 90)))) {
      parts.push(svg("text", { x: Math.min(width - 28, Math.max(LEFT, x(tick))), y: HEIGHT - 6, "text-anchor": "middle" }, clock(start, tick, to - from < 300)));
    }
    for (const line of visible) {
      parts.push(svg("path", { class: `line s${line.colour % 6}`, "stroke-dasharray": DASHES[line.colour % 6], d: stepPath(line, from, to, x, y) }));
    }
    if (dragFrom !== null) {
      const [a, b] = [x(Math.min(dragFrom, dragTo)), x(Math.max(dragFrom, dragTo))];
      parts.push(svg("rect", { class: "brush", x: a, y: TOP, width: b - a, height: HEIGHT - TOP - BOTTOM }));
    }
    const at = x(state.now.hover ?? state.now.at);
    if (at >= LEFT - 1 && at <= width) parts.push(svg("path", { class: "now", d: `M${at} ${TOP}V${HEIGHT - BOTTOM}` }));
    put(stage, svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `${title}. ${says}` }, parts));
    say();
  };

  const say = () => {
    const at = state.now.hover ?? state.now.at;
    const sample = Math.max(...shown().map((line) => line.seconds[lastAt(line.seconds, at)] ?? at));
    put(values, h("span", { class: "soft" }, `${clock(start, Number.isFinite(sample) ? sample : at, true)} `), shown().map((line) => {
      const place = lastAt(line.seconds, at);
      return h("span", { class: "value" }, h("i", { class: `dot b${line.colour % 6}` }), name(line.name), " ", h("b", null, place < 0 ? "–" : format(line.values[place])));
    }));
  };

  stage.addEventListener("pointermove", (event) => {
    const at = timeAt(event.clientX - stage.getBoundingClientRect().left);
    if (dragFrom !== null) dragTo = at;
    state.set({ hover: at });
    if (dragFrom !== null) redraw();
  });
  stage.addEventListener("pointerleave", () => state.set({ hover: null }));
  stage.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "mouse" || event.button !== 0) return;
    dragFrom = dragTo = timeAt(event.clientX - stage.getBoundingClientRect().left);
    stage.setPointerCapture(event.pointerId);
  });
  stage.addEventListener("pointerup", () => {
    if (dragFrom === null) return;
    const [from, to] = [Math.min(dragFrom, dragTo), Math.max(dragFrom, dragTo)];
    dragFrom = null;
    if (to - from > (state.now.to - state.now.from) * 0.02) state.set({ from, to, at: Math.min(to, Math.max(from, state.now.at)) });
    else state.set({ at: from });
    redraw();
  });
  stage.addEventListener("dblclick", () => state.set({ from: 0, to: seconds }));
  const redraw = throttled(draw);
  onLookChange(stage, draw);
  state.listen(redraw);
  return h("figure", { class: "plot" }, h("figcaption", null, h("strong", null, title), h("span", { class: "soft" }, says)), values, stage);
}

/**
 * @param {Line} line
 * @param {number} from
 * @param {number} to
 */
function largest(line, from, to) {
  let most = 0;
  const first = Math.max(0, lastAt(line.seconds, from));
  for (let place = first; place < line.seconds.length && line.seconds[place] <= to; place += 1) most = Math.max(most, line.values[place]);
  return most;
}

/**
 * A line that holds each value until the next, cut to the time that is shown.
 * @param {Line} line
 * @param {number} from
 * @param {number} to
 * @param {(at: number) => number} x
 * @param {(value: number) => number} y
 */
export function stepPath(line, from, to, x, y) {
  const first = Math.max(0, lastAt(line.seconds, from));
  let path = "";
  for (let place = first; place < line.seconds.length && line.seconds[place] <= to; place += 1) {
    const at = x(Math.max(from, line.seconds[place])).toFixed(1);
    const value = y(line.values[place]).toFixed(1);
    path += path === "" ? `M${at} ${value}` : `H${at}V${value}`;
  }
  return path === "" ? "" : `${path}H${x(to).toFixed(1)}`;
}

/**
 * Add values up.
 * @param {number[]} values
 */
export function soFar(values) {
  let total = 0;
  return values.map((value) => (total += value));
}
