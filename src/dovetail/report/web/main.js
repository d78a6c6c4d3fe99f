// Finds the page's document and hands it to its view.

import { forgetColours, h, put } from "./dom.js";
import { connectView } from "./live_view.js";
import { planView } from "./plan_view.js";
import { runView } from "./run_view.js";
import { sweepView } from "./sweep_view.js";

/** @returns {Promise<any>} */
async function readDocument() {
  const holder = document.getElementById("document");
  const text = holder?.textContent ?? "null";
  if (holder?.getAttribute("data-encoding") !== "gzip") return JSON.parse(text);
  const bytes = Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function themeButton() {
  const order = ["auto", "light", "dark"];
  let at = 0;
  const button = h("button", {
    type: "button", class: "theme",
    onclick: () => {
      at = (at + 1) % order.length;
      if (at === 0) delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = order[at];
      put(button, `theme: ${order[at]}`);
      forgetColours();
      document.documentElement.dispatchEvent(new Event("themechange"));
    },
  }, "theme: auto");
  document.querySelector("header.top")?.append(button);
}

/** On paper everything is open, light, and as wide as a sheet; canvases must be drawn before the sheets are laid out. */
function forPaper() {
  const page = document.documentElement;
  /** @type {HTMLDetailsElement[]} */
  let opened = [];
  let theme = page.dataset.theme;
  /** @param {boolean} paper */
  const lookAs = (paper) => {
    for (const part of opened) part.open = paper;
    page.toggleAttribute("data-paper", paper);
    if (paper || theme) page.dataset.theme = paper ? "light" : theme;
    else delete page.dataset.theme;
    forgetColours();
    page.dispatchEvent(new Event("paperchange"));
  };
  window.addEventListener("beforeprint", () => {
    if (page.hasAttribute("data-paper")) return;
    theme = page.dataset.theme;
    opened = [...document.querySelectorAll("details")].filter((part) => !part.open);
    lookAs(true);
  });
  window.addEventListener("afterprint", () => lookAs(false));
}

async function begin() {
  themeButton();
  forPaper();
  const root = document.getElementById("view");
  const found = root === null ? null : await readDocument();
  if (root !== null && found !== null) {
    if (found.kind === "run") runView(root, found);
    else if (found.kind === "sweep") sweepView(root, found);
    else if (found.kind === "connect") connectView(root);
    else if (found.kind === "plan") planView(root, found);
  }
  requestAnimationFrame(() => {
    performance.mark("drawn");
    document.documentElement.dataset.ready = "true";
  });
}

begin();
