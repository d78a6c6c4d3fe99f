// Each node's life as a bar, grouped by zone and pool: the picture of churn. Drawn on a canvas, read out by keyboard.

import { css, h, name, onLookChange, put, sharpen, showTip, throttled } from "./dom.js";
import { fateOf } from "./fates.js";
import { clock, count, dollars, span, timeTicks } from "./format.js";

/**
 * @typedef {import("./types").PolicyRun} PolicyRun
 * @typedef {import("./run_view.js").RunState} RunState
 * @typedef {Omit<PolicyRun["machines"], "cpu" | "memory">} LaneMachines
 * @typedef {Pick<PolicyRun["stays"], "moved" | "machine" | "ended">} LaneStays
 * @typedef {{name: string, machines: LaneMachines, stays: LaneStays, commands: PolicyRun["commands"], ongoing?: boolean}} LaneRun
 * @typedef {{label: string, rows: number[][]}} Group
 */

const AXIS = 22;
const HEAD = 20;
const PACK_FROM = 90;

/**
 * Sort machines into groups (zone, pool) and rows; where there are many, a row is used again after its node has ended.
 * @param {LaneMachines} machines
 * @returns {Group[]}
 */
export function layOut(machines) {
  /** @type {Map<string, number[]>} */
  const members = new Map();
  machines.name.forEach((_, index) => {
    const key = `${machines.zone[index] || "no zone"}\u0000${machines.pool[index] || "no pool"}`;
    const list = members.get(key);
    if (list) list.push(index);
    else members.set(key, [index]);
  });
  const packed = machines.name.length > PACK_FROM;
  return [...members.keys()].sort().map((key) => {
    const [zone, pool] = key.split("\u0000");
    const list = /** @type {number[]} */ (members.get(key));
    list.sort((a, b) => Math.max(0, machines.started[a]) - Math.max(0, machines.started[b])
      || endOf(machines, a) - endOf(machines, b) || (machines.name[a] < machines.name[b] ? -1 : 1));
    return { label: `${zone} · ${pool} · ${count(list.length, "node")}`, rows: packed ? pack(machines, list) : list.map((one) => [one]) };
  });
}

/**
 * @param {LaneMachines} machines
 * @param {number} index
 */
function endOf(machines, index) {
  return machines.ended[index] < 0 ? Infinity : machines.ended[index];
}

/**
 * @param {LaneMachines} machines
 * @param {number[]} list
 */
function pack(machines, list) {
  /** @type {number[][]} */
  const rows = [];
  /** @type {number[]} */
  const free = [];
  for (const index of list) {
    let row = free.findIndex((end) => end <= machines.started[index]);
    if (row < 0) {
      row = rows.length;
      rows.push([]);
    }
    rows[row].push(index);
    free[row] = endOf(machines, index);
  }
  return rows;
}

/**
 * The lanes of one policy, or of a cluster; `update` draws later ones.
 * @param {object} options
 * @param {LaneRun} options.run
 * @param {import("./state.js").State<RunState>} options.state
 * @param {number} options.seconds
 * @param {string} options.start
 * @returns {{element: HTMLElement, update: (run: LaneRun, seconds: number) => void}}
 */
export function lanes({ run, state, seconds, start }) {
  let machines = run.machines;
  /** @type {Group[]} */
  let groups = [];
  /** @type {Record<number, number[]>} */
  let marks = {};
  let rowHeight = 15;
  let height = 0;
  /** @type {{index: number, y: number}[]} */
  const placed = [];
  const canvas = h("canvas", { "aria-hidden": "true" });
  const cursor = h("div", { class: "cursor" });
  const spoken = h("p", { class: "visually-hidden", "aria-live": "polite" });
  const stage = h(
    "div",
    {
      class: "lanes-stage",
      tabindex: 0,
      role: "application",
    },
    canvas,
    cursor,
  );
  const box = h("div", { class: "lanes" }, stage, spoken);
  let width = 0;
  let chosen = -1;

  /** Work out rows and heights: once, and after each change. */
  const measure = () => {
    machines = run.machines;
    groups = layOut(machines);
    marks = marksOf(run);
    const rowCount = groups.reduce((sum, group) => sum + group.rows.length, 0);
    rowHeight = rowCount <= 45 ? 15 : rowCount <= 120 ? 13 : 7;
    height = AXIS + groups.length * HEAD + rowCount * rowHeight + 6;
    stage.style.height = `${height}px`;
    stage.setAttribute("aria-label", `Lives of ${count(machines.name.length, "node")} under ${run.name}. Up and down arrows go from node to node, Enter sets the time.`);
  };

  /** @param {number} at */
  const x = (at) => ((at - state.now.from) / (state.now.to - state.now.from)) * width;

  const draw = () => {
    width = stage.clientWidth;
    if (width === 0) return;
    const context = sharpen(canvas, width, height);
    context.clearRect(0, 0, width, height);
    context.font = `11px ${css("--font")}`;
    context.textBaseline = "middle";
    drawAxis(context);
    placed.length = 0;
    let y = AXIS;
    for (const group of groups) {
      context.fillStyle = css("--soft");
      context.font = `600 11px ${css("--font")}`;
      context.fillText(group.label, 6, y + HEAD / 2 + 2);
      y += HEAD;
      for (const row of group.rows) {
        for (const index of row) {
          drawBar(context, index, y);
          placed.push({ index, y });
        }
        y += rowHeight;
      }
    }
    moveCursor();
  };

  /** @param {CanvasRenderingContext2D} context */
  const drawAxis = (context) => {
    const { from, to } = state.now;
    context.strokeStyle = css("--line");
    context.fillStyle = css("--soft");
    context.lineWidth = 1;
    for (const tick of timeTicks(from, to, Math.max(3, Math.floor(width / 90)))) {
      const at = Math.round(x(tick)) + 0.5;
      context.beginPath();
      context.moveTo(at, AXIS - 4);
      context.lineTo(at, height);
      context.stroke();
      const text = clock(start, tick, to - from < 300);
      const wide = context.measureText(text).width;
      context.fillText(text, Math.min(Math.max(2, at - wide / 2), width - wide - 2), 9);
    }
  };

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} index
   * @param {number} y
   */
  const drawBar = (context, index, y) => {
    const fate = fateOf(machines.fate[index]);
    const hidden = state.now.fates.has(machines.fate[index]);
    const begin = Math.max(x(machines.started[index]), -4);
    const end = Math.min(machines.ended[index] < 0 ? x(seconds) : x(machines.ended[index]), width + 4);
    if (end < 0 || begin > width) return;
    const tall = rowHeight - 3;
    context.globalAlpha = hidden ? 0.12 : 1;
    context.fillStyle = css(fate.colour);
    rounded(context, begin, y + 1, Math.max(2, end - begin), tall, Math.min(4, tall / 2));
    if (machines.leaving[index] >= 0) {
      const from = Math.max(x(machines.leaving[index]), begin);
      hatch(context, from, y + 1, Math.max(2, end - from), tall);
    }
    if (!hidden) {
      drawMarks(context, index, y, tall);
      drawLabel(context, index, y, tall, begin, end);
    }
    if (index === chosen || machines.name[index] === state.now.node) {
      context.strokeStyle = css("--ink");
      context.lineWidth = 2;
      context.strokeRect(begin - 1, y, Math.max(4, end - begin + 2), tall + 2);
    }
    context.globalAlpha = 1;
  };

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} index
   * @param {number} y
   * @param {number} tall
   */
  const drawMarks = (context, index, y, tall) => {
    const times = marks[index];
    if (!times) return;
    context.fillStyle = css("--mark");
    const size = Math.max(1.6, tall / 5);
    let last = -10;
    for (const at of times) {
      const px = x(at);
      if (px < -2 || px > width + 2 || px - last < 1) continue;
      last = px;
      context.beginPath();
      context.arc(px, y + 1 + tall / 2, size, 0, 7);
      context.fill();
    }
  };

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {number} index
   * @param {number} y
   * @param {number} tall
   * @param {number} begin
   * @param {number} end
   */
  const drawLabel = (context, index, y, tall, begin, end) => {
    const fate = fateOf(machines.fate[index]);
    if (tall < 8) return;
    const middle = y + 1 + tall / 2 + 0.5;
    context.fillStyle = css(fate.ink);
    const room = Math.min(end, width) - Math.max(begin, 0) - 10;
    const ended = machines.ended[index] >= 0;
    const texts = ended ? [`${machines.type[index]}, ${fate.label}`, fate.label, fate.letter] : [machines.type[index]];
    context.font = `600 ${tall > 10 ? 10 : 9}px ${css("--font")}`;
    for (const text of texts) {
      if (text && context.measureText(text).width <= room) {
        context.fillText(text, Math.max(begin, 0) + 5, middle);
        return;
      }
    }
    if (ended && fate.letter && end + 12 < width) {
      context.fillStyle = css("--ink");
      context.fillText(fate.letter, end + 3, middle);
    }
  };

  const moveCursor = () => {
    const at = x(state.now.at);
    cursor.style.transform = `translateX(${at}px)`;
    cursor.hidden = at < 0 || at > width;
  };

  /** @param {MouseEvent} event */
  const hit = (event) => {
    const bounds = stage.getBoundingClientRect();
    const px = event.clientX - bounds.left;
    const py = event.clientY - bounds.top;
    const at = state.now.from + (px / width) * (state.now.to - state.now.from);
    const found = placed.find(
      ({ index, y }) => py >= y && py < y + rowHeight && x(machines.started[index]) - 3 <= px
        && (machines.ended[index] < 0 || px <= x(machines.ended[index]) + 12),
    );
    return { at, index: found ? found.index : -1 };
  };

  stage.addEventListener("mousemove", (event) => {
    const { at, index } = hit(event);
    state.set({ hover: at });
    showTip(index < 0 ? null : { x: event.clientX, y: event.clientY }, index < 0 ? [] : describe(run, index, start));
  });
  stage.addEventListener("mouseleave", () => {
    state.set({ hover: null });
    showTip(null);
  });
  stage.addEventListener("click", (event) => {
    const { at, index } = hit(event);
    state.set({ at: Math.max(0, Math.min(seconds, at)), node: index < 0 ? null : machines.name[index], nodeOf: run.name });
  });
  stage.addEventListener("keydown", (event) => {
    const order = placed.map((entry) => entry.index);
    const place = order.indexOf(chosen);
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const step = event.key === "ArrowDown" ? 1 : -1;
      chosen = order[Math.min(order.length - 1, Math.max(0, place < 0 ? 0 : place + step))];
      put(spoken, sentenceOf(run, chosen, start));
    } else if (event.key === "Enter" && chosen >= 0) {
      const end = machines.leaving[chosen] >= 0 ? machines.leaving[chosen] : Math.max(0, machines.started[chosen]);
      state.set({ at: end, node: machines.name[chosen], nodeOf: run.name });
    } else {
      return;
    }
    event.preventDefault();
    redraw();
  });
  stage.addEventListener("blur", () => {
    chosen = -1;
    redraw();
  });
  const redraw = throttled(draw);
  measure();
  onLookChange(stage, draw);
  state.listen((_, changed) => {
    if (changed.has("from") || changed.has("to") || changed.has("fates") || changed.has("node")) redraw();
    else if (changed.has("at")) moveCursor();
  });
  return {
    element: box,
    update(next, last) {
      const node = machines.name[chosen];
      [run, seconds] = [next, last];
      measure();
      chosen = node === undefined ? -1 : machines.name.indexOf(node);
      redraw();
    },
  };
}

/**
 * The times at which pods had to leave each machine.
 * @param {LaneRun} run
 */
export function marksOf(run) {
  /** @type {Record<number, number[]>} */
  const marks = {};
  run.stays.moved.forEach((moved, row) => {
    if (moved && run.stays.machine[row] >= 0 && run.stays.ended[row] >= 0) (marks[run.stays.machine[row]] ??= []).push(run.stays.ended[row]);
  });
  for (const list of Object.values(marks)) list.sort((a, b) => a - b);
  return marks;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 * @param {number} radius
 */
export function rounded(context, x, y, width, height, radius) {
  context.beginPath();
  context.roundRect(x, y, width, height, Math.min(radius, width / 2));
  context.fill();
}

/**
 * Stripes over the time in which a node was on its way out.
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 */
function hatch(context, x, y, width, height) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = css("--hatch");
  context.lineWidth = 1.5;
  for (let at = x - height; at < x + width; at += 4) {
    context.beginPath();
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
    context.stroke();
  }
  context.restore();
}

/**
 * @param {LaneRun} run
 * @param {number} index
 * @param {string} start
 */
export function sentenceOf(run, index, start) {
  const { machines } = run;
  const fate = fateOf(machines.fate[index]);
  const end = machines.ended[index];
  const from = machines.started[index] < 0 ? "there before the start" : `launched ${clock(start, machines.started[index], true)}`;
  const until = end < 0 ? (run.ongoing ? "still running" : "still running at the end") : `${fate.label} at ${clock(start, end, true)}, after ${span(end - machines.started[index])}`;
  return `${machines.name[index]}, ${machines.type[index]} in ${machines.zone[index]}: ${from}, ${until}.`;
}

/**
 * What a tip says of a machine.
 * @param {LaneRun} run
 * @param {number} index
 * @param {string} start
 */
export function describe(run, index, start) {
  const { machines } = run;
  const moved = (marksOf(run)[index] ?? []).length;
  const command = run.commands[machines.command[index]];
  return [
    h("strong", null, name(machines.name[index])),
    h("div", null, `${machines.type[index]}, ${machines.capacityType[index]}, ${dollars(machines.price[index], 4)} per hour`),
    h("div", null, name(`${machines.zone[index]}, pool ${machines.pool[index]}`)),
    h("div", null, sentenceOf(run, index, start).split(": ").slice(1).join(": ")),
    moved ? h("div", null, `${count(moved, "pod")} had to leave it`) : null,
    command ? h("div", { class: "because" }, name(command.why)) : null,
  ];
}
