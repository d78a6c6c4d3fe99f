// The cluster at one moment: nodes as boxes, wide by their CPUs, filled with their pods.

import { css, h, name, onLookChange, put, sharpen, showTip, throttled } from "./dom.js";
import { fateOf, hueOf } from "./fates.js";
import { count, dollars, memory, percent } from "./format.js";

/**
 * @typedef {import("./types").PolicyRun} PolicyRun
 * @typedef {import("./run_view.js").RunState} RunState
 * @typedef {{index: number, x: number, y: number, width: number, height: number}} Box
 */

const RECENT = 120;

/**
 * Rows of `stays` per machine, in the order in which the pods came.
 * @param {PolicyRun} run
 */
export function staysByMachine(run) {
  /** @type {number[][]} */
  const rows = run.machines.name.map(() => []);
  run.stays.machine.forEach((machine, row) => {
    if (machine >= 0) rows[machine].push(row);
  });
  return rows;
}

/**
 * Whether something that began and ended then is there at a time; -1 as an end is none.
 * @param {number} began
 * @param {number} ended
 * @param {number} at
 */
export function isThere(began, ended, at) {
  return began <= at && (ended < 0 || ended > at);
}

/**
 * The state of a run at one moment, in figures.
 * @param {PolicyRun} run
 * @param {number} at
 */
export function momentOf(run, at) {
  const { machines, stays } = run;
  let nodes = 0;
  let cost = 0;
  let leaving = 0;
  machines.name.forEach((_, index) => {
    if (!isThere(machines.started[index], machines.ended[index], at)) return;
    nodes += 1;
    cost += machines.price[index];
    if (machines.leaving[index] >= 0 && machines.leaving[index] <= at) leaving += 1;
  });
  let waiting = 0;
  let moved = 0;
  stays.created.forEach((created, row) => {
    const bound = stays.began[row] >= 0 && stays.began[row] <= at;
    if (!bound && isThere(created, stays.ended[row], at)) waiting += 1;
    if (stays.moved[row] && stays.ended[row] >= 0 && stays.ended[row] <= at) moved += 1;
  });
  return { nodes, cost, leaving, waiting, moved };
}

/**
 * @param {object} options
 * @param {PolicyRun} options.run
 * @param {import("./state.js").State<RunState>} options.state
 * @returns {HTMLElement}
 */
export function clusterView({ run, state }) {
  const { machines, stays, workloads } = run;
  const rows = staysByMachine(run);
  const canvas = h("canvas", { role: "img", "aria-label": `The nodes under ${run.name} at the chosen time` });
  const head = h("p", { class: "moment" });
  const stage = h("div", { class: "cluster-stage" }, canvas);
  /** @type {Box[]} */
  let boxes = [];

  const draw = () => {
    const at = state.now.at;
    const width = stage.clientWidth;
    if (width === 0) return;
    const now = momentOf(run, at);
    const facts = [
      h("strong", null, count(now.nodes, "node")), ` ${dollars(now.cost)}/h`,
      now.leaving ? h("span", { class: "pill leaving" }, `${now.leaving} leaving`) : null,
      now.waiting ? h("span", { class: "pill waiting" }, `${count(now.waiting, "pod")} waiting`) : null,
      h("span", { class: "soft" }, ` ${now.moved} restarted so far`),
    ];
    put(head, facts);
    const plan = place(width, at);
    boxes = plan.boxes;
    const context = sharpen(canvas, width, plan.height);
    context.clearRect(0, 0, width, plan.height);
    context.textBaseline = "middle";
    context.font = `600 11px ${css("--font")}`;
    context.fillStyle = css("--soft");
    for (const label of plan.labels) context.fillText(label.text, 0, label.y);
    const dark = css("--scheme") === "dark";
    for (const box of boxes) drawNode(context, box, at, dark);
    canvas.setAttribute("aria-label", `${run.name}: ${count(now.nodes, "node")}, ${count(now.leaving, "node")} leaving, ${count(now.waiting, "pod")} waiting`);
  };

  /**
   * @param {number} width
   * @param {number} at
   */
  const place = (width, at) => {
    /** @type {Map<string, number[]>} */
    const zones = new Map();
    machines.name.forEach((_, index) => {
      if (!isThere(machines.started[index], machines.ended[index], at)) return;
      const zone = machines.zone[index] || "no zone";
      const list = zones.get(zone);
      if (list) list.push(index);
      else zones.set(zone, [index]);
    });
    const alive = [...zones.values()].reduce((sum, list) => sum + list.length, 0);
    const unit = alive <= 40 ? 30 : alive <= 120 ? 18 : 8;
    const tall = alive <= 40 ? 40 : alive <= 120 ? 26 : 12;
    const gap = alive <= 120 ? 6 : 3;
    /** @type {Box[]} */
    const found = [];
    const labels = [];
    let y = 0;
    for (const zone of [...zones.keys()].sort()) {
      labels.push({ text: zone, y: y + 8 });
      y += 18;
      let x = 0;
      for (const index of /** @type {number[]} */ (zones.get(zone))) {
        const wide = Math.min(width, Math.max(unit * 1.2, unit * Math.min(16, machines.cpu[index] / 1000)));
        if (x > 0 && x + wide > width) {
          x = 0;
          y += tall + gap;
        }
        found.push({ index, x, y, width: wide, height: tall });
        x += wide + gap;
      }
      y += tall + gap + 6;
    }
    return { boxes: found, labels, height: Math.max(40, y) };
  };

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Box} box
   * @param {number} at
   * @param {boolean} dark
   */
  const drawNode = (context, box, at, dark) => {
    const { index } = box;
    const leaving = machines.leaving[index] >= 0 && machines.leaving[index] <= at;
    context.fillStyle = css("--node");
    context.beginPath();
    context.roundRect(box.x, box.y, box.width, box.height, 4);
    context.fill();
    context.save();
    context.clip();
    let x = box.x;
    let bytes = 0;
    const room = Math.max(1, machines.cpu[index]);
    const gauge = box.height >= 20 ? 5 : 0;
    for (const row of rows[index]) {
      if (!isThere(stays.began[row], stays.ended[row], at)) continue;
      const work = stays.workload[row];
      const wide = (Math.max(workloads.cpu[work], room / 80) / room) * box.width;
      bytes += workloads.memory[work];
      if (workloads.daemon[work]) context.fillStyle = css("--daemon");
      else context.fillStyle = `hsl(${hueOf(workloads.name[work])} ${dark ? "42% 50%" : "50% 62%"})`;
      context.fillRect(x, box.y, Math.max(1, wide - 1), box.height - gauge);
      if (at - stays.began[row] < RECENT && stays.began[row] > 0 && !workloads.daemon[work]) {
        context.fillStyle = css("--ink");
        context.fillRect(x, box.y, Math.max(1, wide - 1), 3);
      }
      x += wide;
    }
    if (gauge) {
      context.fillStyle = css("--soft");
      context.fillRect(box.x, box.y + box.height - 4, Math.min(1, bytes / Math.max(1, machines.memory[index])) * box.width, 4);
    }
    context.restore();
    const fate = fateOf(leaving ? machines.fate[index] === "kept" ? "removed" : machines.fate[index] : "kept");
    context.strokeStyle = leaving ? css(fate.colour) : css("--line");
    context.lineWidth = leaving ? 2.5 : 1;
    context.setLineDash(leaving ? [4, 3] : []);
    context.beginPath();
    context.roundRect(box.x + 0.5, box.y + 0.5, box.width - 1, box.height - 1, 4);
    context.stroke();
    context.setLineDash([]);
    if (machines.name[index] === state.now.node) {
      context.strokeStyle = css("--ink");
      context.lineWidth = 2;
      context.strokeRect(box.x - 1.5, box.y - 1.5, box.width + 3, box.height + 3);
    }
    if (leaving && box.height >= 24) {
      context.fillStyle = css(fate.colour);
      context.beginPath();
      context.arc(box.x + box.width - 9, box.y + 9, 8, 0, 7);
      context.fill();
      context.fillStyle = css("--f-ink");
      context.font = `700 10px ${css("--font")}`;
      context.textAlign = "center";
      context.fillText(fate.letter || "–", box.x + box.width - 9, box.y + 9.5);
      context.textAlign = "left";
    }
  };

  /** @param {MouseEvent} event */
  const under = (event) => {
    const bounds = canvas.getBoundingClientRect();
    const px = event.clientX - bounds.left;
    const py = event.clientY - bounds.top;
    return boxes.find((box) => px >= box.x && px <= box.x + box.width && py >= box.y && py <= box.y + box.height);
  };
  canvas.addEventListener("mousemove", (event) => {
    const box = under(event);
    showTip(box ? { x: event.clientX, y: event.clientY } : null, box ? nodeNow(run, rows[box.index], box.index, state.now.at) : []);
  });
  canvas.addEventListener("mouseleave", () => showTip(null));
  canvas.addEventListener("click", (event) => {
    const box = under(event);
    state.set({ node: box ? machines.name[box.index] : null, nodeOf: run.name });
  });
  const redraw = throttled(draw);
  onLookChange(stage, draw);
  state.listen((_, changed) => {
    if (changed.has("at") || changed.has("node")) redraw();
  });
  return h("div", { class: "cluster" }, h("h3", null, name(run.name)), head, stage);
}

/**
 * A node at a moment: its type, its price, how full it is, its pods by workload.
 * @param {PolicyRun} run
 * @param {number[]} rows
 * @param {number} index
 * @param {number} at
 */
export function nodeNow(run, rows, index, at) {
  const { machines, stays, workloads } = run;
  let cpu = 0;
  let bytes = 0;
  /** @type {Map<string, number>} */
  const pods = new Map();
  for (const row of rows) {
    if (!isThere(stays.began[row], stays.ended[row], at)) continue;
    const work = stays.workload[row];
    cpu += workloads.cpu[work];
    bytes += workloads.memory[work];
    pods.set(workloads.name[work], (pods.get(workloads.name[work]) ?? 0) + 1);
  }
  const listed = [...pods].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, 12);
  return [
    h("strong", null, name(machines.name[index])),
    h("div", null, `${machines.type[index]}, ${dollars(machines.price[index], 4)} per hour`),
    h("div", null, `CPU ${percent(cpu / Math.max(1, machines.cpu[index]))}, memory ${percent(bytes / Math.max(1, machines.memory[index]))} of ${memory(machines.memory[index])}`),
    h("div", { class: "pods" }, listed.map(([pod, amount]) => h("span", { class: "pod" }, name(amount > 1 ? `${pod} ×${amount}` : pod)))),
  ];
}
