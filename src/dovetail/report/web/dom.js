// Builds elements. Text goes in as text nodes only, so that a name from a cluster can't become markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {Record<string, string | number | boolean | null | undefined | ((event: any) => void)>} Attributes
 */

/**
 * Build an HTML element; attributes that begin with "on" are listeners.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes | null} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  dress(element, attributes);
  fill(element, children);
  return element;
}

/**
 * Build an SVG element.
 * @param {string} tag
 * @param {Attributes | null} [attributes]
 * @param {...(Child | Child[])} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes, ...children) {
  const element = /** @type {SVGElement} */ (document.createElementNS(SVG, tag));
  dress(element, attributes);
  fill(element, children);
  return element;
}

/**
 * @param {Element} element
 * @param {Attributes | null} [attributes]
 */
function dress(element, attributes) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
}

/**
 * @param {Element} element
 * @param {(Child | Child[])[]} children
 */
function fill(element, children) {
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

/**
 * Replace what an element holds.
 * @param {Element} element
 * @param {...(Child | Child[])} children
 */
export function put(element, ...children) {
  element.replaceChildren();
  fill(element, children);
}

/**
 * A name from a cluster: isolated, so that a right-to-left one can't turn the line around it.
 * @param {string} text
 */
export function name(text) {
  return h("bdi", { class: "name" }, visible(text));
}

/**
 * Show control, format and separator characters as escapes.
 * @param {string} text
 */
export function visible(text) {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Zl}\p{Zp}]/gu, (char) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`);
}

/** @type {Map<string, string>} */
const variables = new Map();

/**
 * The value of a CSS variable; remembered until the theme changes.
 * @param {string} variable
 */
export function css(variable) {
  let value = variables.get(variable);
  if (value === undefined) {
    value = getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
    variables.set(variable, value);
  }
  return value;
}

/** Forget colours; called when the theme changes. */
export function forgetColours() {
  variables.clear();
}

/**
 * A canvas that fills its place and is as sharp as the screen; `draw` is called when it has to be drawn again.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 * @returns {CanvasRenderingContext2D}
 */
export function sharpen(canvas, width, height) {
  const ratio = Math.min(3, window.devicePixelRatio || 1);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/**
 * Run once per frame at most.
 * @param {() => void} work
 */
export function throttled(work) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      work();
    });
  };
}

/**
 * Call back when the theme or the width changes: with the next frame, but at once for paper.
 * @param {Element} element
 * @param {() => void} work
 */
export function onLookChange(element, work) {
  const soon = throttled(work);
  let width = -1;
  new ResizeObserver(() => {
    if (element.clientWidth !== width) {
      width = element.clientWidth;
      soon();
    }
  }).observe(element);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    forgetColours();
    soon();
  });
  document.documentElement.addEventListener("themechange", soon);
  document.documentElement.addEventListener("paperchange", work);
}

/** @type {HTMLElement | null} */
let tip = null;

/**
 * Show a tip near a point of the window; null hides it.
 * @param {{x: number, y: number} | null} at
 * @param {...(Child | Child[])} content
 */
export function showTip(at, ...content) {
  if (tip === null) {
    tip = h("div", { class: "tip", role: "tooltip", hidden: true });
    document.body.append(tip);
  }
  if (at === null) {
    tip.hidden = true;
    return;
  }
  put(tip, ...content);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, at.x + 14), innerWidth - box.width - 8);
  const below = at.y + 18;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${below + box.height > innerHeight ? Math.max(8, at.y - box.height - 12) : below}px`;
}
