// The cluster at a glance: zones and pools, each node a cell with its fill, coloured by its verdict. One canvas.

import { css, h, onLookChange, sharpen, throttled } from "./dom.js";
import { FAMILIES } from "./families.js";
import { count, dollars } from "./format.js";

/**
 * @typedef {object} Cell
 * @property {number} index
 * @property {string} name
 * @property {string} zone
 * @property {string} pool
 * @property {number} cpu
 * @property {number} fill
 * @property {number} price
 * @property {string} family
 * @property {boolean} dim
 */

/**
 * @param {object} options
 * @param {string} options.label
 * @param {() => Cell[]} options.cells
 * @param {(cell: Cell | null, event: MouseEvent) => void} options.onHover
 * @param {(cell: Cell) => void} options.onPick
 * @param {() => string | null} options.picked
 */
export function nodeMap({ label, cells, onHover, onPick, picked }) {
  const canvas = h("canvas", { role: "img", "aria-label": label });
  const stage = h("div", { class: "map-stage" }, canvas);
  /** @type {{cell: Cell, x: number, y: number, width: number, height: number}[]} */
  let boxes = [];

  const draw = () => {
    const width = stage.clientWidth;
    if (width === 0) return;
    const all = cells();
    const plan = arrange(all, width);
    boxes = plan.boxes;
    const context = sharpen(canvas, width, plan.height);
    context.clearRect(0, 0, width, plan.height);
    context.textBaseline = "middle";
    for (const { text, x, y, strong } of plan.labels) {
      context.font = strong ? `700 13px ${css("--font")}` : `11.5px ${css("--font")}`;
      context.fillStyle = css(strong ? "--ink" : "--soft");
      context.fillText(text, x, y);
    }
    const chosen = picked();
    for (const box of boxes) drawCell(context, box, box.cell.name === chosen);
    canvas.setAttribute("aria-label", `${label}: ${count(all.length, "node")}, ${dollars(all.reduce((sum, cell) => sum + Math.max(0, cell.price), 0))} per hour`);
  };

  /** @param {MouseEvent} event */
  const under = (event) => {
    const bounds = canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - bounds.left, event.clientY - bounds.top];
    return boxes.find((box) => px >= box.x && px <= box.x + box.width && py >= box.y && py <= box.y + box.height)?.cell ?? null;
  };
  canvas.addEventListener("mousemove", (event) => onHover(under(event), event));
  canvas.addEventListener("mouseleave", (event) => onHover(null, event));
  canvas.addEventListener("click", (event) => {
    const cell = under(event);
    if (cell) onPick(cell);
  });
  onLookChange(stage, draw);
  return { element: stage, redraw: throttled(draw) };
}

/**
 * Put cells into zones side by side, and pools below each other within them; the more there are, the smaller.
 * @param {Cell[]} all
 * @param {number} width
 */
export function arrange(all, width) {
  /** @type {Map<string, Map<string, Cell[]>>} */
  const zones = new Map();
  for (const cell of all) {
    const pools = zones.get(cell.zone) ?? new Map();
    zones.set(cell.zone, pools);
    const list = pools.get(cell.pool);
    if (list) list.push(cell);
    else pools.set(cell.pool, [cell]);
  }
  const size = all.length <= 60 ? 36 : all.length <= 200 ? 30 : all.length <= 800 ? 16 : all.length <= 2500 ? 10 : 7;
  const gap = size > 20 ? 5 : size > 9 ? 3 : 2;
  const between = 24;
  const columns = Math.max(1, Math.min(zones.size, Math.floor((width + between) / (260 + between))));
  const wide = (width - between * (columns - 1)) / columns;
  const perRow = Math.max(1, Math.floor((wide + gap) / (size + gap)));
  const heights = Array.from({ length: columns }, () => 0);
  /** @type {{cell: Cell, x: number, y: number, width: number, height: number}[]} */
  const boxes = [];
  /** @type {{text: string, x: number, y: number, strong: boolean}[]} */
  const labels = [];
  for (const zone of [...zones.keys()].sort()) {
    const column = heights.indexOf(Math.min(...heights));
    const x = column * (wide + between);
    const pools = /** @type {Map<string, Cell[]>} */ (zones.get(zone));
    let y = heights[column] + (heights[column] ? 10 : 0);
    const nodes = [...pools.values()].reduce((sum, list) => sum + list.length, 0);
    labels.push({ text: `${zone || "no zone"} · ${count(nodes, "node")}`, x, y: y + 9, strong: true });
    y += 20;
    for (const pool of [...pools.keys()].sort()) {
      const list = /** @type {Cell[]} */ (pools.get(pool));
      labels.push({ text: `${pool || "no pool"} · ${list.length}`, x, y: y + 8, strong: false });
      y += 18;
      list.forEach((cell, place) => {
        boxes.push({ cell, x: x + (place % perRow) * (size + gap), y: y + Math.floor(place / perRow) * (size + gap), width: size, height: size });
      });
      y += Math.ceil(list.length / perRow) * (size + gap) + 4;
    }
    heights[column] = y;
  }
  return { boxes, labels, height: Math.max(40, ...heights) + 4 };
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {{cell: Cell, x: number, y: number, width: number, height: number}} box
 * @param {boolean} chosen
 */
function drawCell(context, box, chosen) {
  const { cell, x, y, width, height } = box;
  const family = FAMILIES[cell.family] ?? FAMILIES.settled;
  context.globalAlpha = cell.dim ? 0.13 : 1;
  const radius = width > 12 ? 5 : 2;
  context.fillStyle = css("--node");
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
  context.fill();
  const tall = Math.max(1, Math.min(1, cell.fill) * height);
  context.save();
  context.clip();
  context.fillStyle = css(family.colour);
  context.fillRect(x, y + height - tall, width, tall);
  context.restore();
  context.strokeStyle = css(family.colour);
  context.lineWidth = width > 12 ? 1.5 : 1;
  context.beginPath();
  context.roundRect(x + 0.5, y + 0.5, width - 1, height - 1, radius);
  context.stroke();
  if (width >= 28 && family.letter !== "·") {
    context.fillStyle = css("--card");
    context.beginPath();
    context.arc(x + width / 2, y + height / 2, 8, 0, 7);
    context.fill();
    context.fillStyle = css("--ink");
    context.textAlign = "center";
    context.font = `700 10px ${css("--font")}`;
    context.fillText(family.letter, x + width / 2, y + height / 2 + 0.5);
    context.textAlign = "left";
  }
  if (chosen) {
    context.globalAlpha = 1;
    context.strokeStyle = css("--ink");
    context.lineWidth = 2.5;
    context.strokeRect(x - 2, y - 2, width + 4, height + 4);
  }
  context.globalAlpha = 1;
}
