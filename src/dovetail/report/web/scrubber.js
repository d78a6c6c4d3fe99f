// The time control: play, speed, a slider, steps from command to command.

import { h, put } from "./dom.js";
import { clock, span } from "./format.js";

/** @typedef {import("./run_view.js").RunState} RunState */

const SPEEDS = [30, 60, 300, 900, 3600];

/**
 * @param {object} options
 * @param {import("./state.js").State<RunState>} options.state
 * @param {number} options.seconds
 * @param {string} options.start
 * @param {() => number[]} options.moments when a command of a shown policy began
 * @returns {HTMLElement}
 */
export function scrubber({ state, seconds, start, moments }) {
  const slider = h("input", {
    type: "range", min: 0, max: Math.round(seconds), step: 1, value: 0, "aria-label": "Time", class: "time",
    oninput: () => state.set({ at: Number(slider.value), playing: false }),
  });
  const play = h("button", { type: "button", class: "play", onclick: () => toggle() });
  const shown = h("output", { class: "clock" });
  const speed = h("select", { "aria-label": "Speed", onchange: () => state.set({ speed: Number(speed.value) }) },
    SPEEDS.map((value) => h("option", { value, selected: value === state.now.speed }, `${span(value)}/s`)));
  const back = h("button", { type: "button", "aria-label": "Previous command", onclick: () => jump(-1) }, "‹", h("span", { class: "long" }, " command"));
  const next = h("button", { type: "button", "aria-label": "Next command", onclick: () => jump(1) }, h("span", { class: "long" }, "command "), "›");
  let before = 0;

  /** @param {number} direction */
  const jump = (direction) => {
    const times = [...moments()].sort((a, b) => a - b);
    const at = state.now.at;
    const found = direction > 0 ? times.find((time) => time > at + 0.5) : times.reverse().find((time) => time < at - 0.5);
    if (found !== undefined) state.set({ at: found, playing: false });
  };

  const toggle = () => {
    const ended = state.now.at >= seconds - 0.5;
    state.set({ playing: !state.now.playing, ...(ended && !state.now.playing ? { at: 0 } : {}) });
    if (state.now.playing) requestAnimationFrame(tick);
  };

  /** @param {number} now */
  const tick = (now) => {
    if (!state.now.playing) {
      before = 0;
      return;
    }
    if (before) {
      const at = Math.min(seconds, state.now.at + ((now - before) / 1000) * state.now.speed);
      state.set({ at, ...(at >= seconds ? { playing: false } : {}) });
    }
    before = now;
    requestAnimationFrame(tick);
  };

  const show = () => {
    slider.value = String(Math.round(state.now.at));
    const text = `${clock(start, state.now.at, true)} · ${span(state.now.at)} in`;
    slider.setAttribute("aria-valuetext", text);
    put(shown, text);
    put(play, state.now.playing ? "❚❚ pause" : "▶ play");
    play.setAttribute("aria-pressed", String(state.now.playing));
  };
  state.listen((_, changed) => {
    if (changed.has("at") || changed.has("playing")) show();
  });
  show();
  return h("div", { class: "scrubber", role: "group", "aria-label": "Time control" }, play, speed, h("span", { class: "jumps" }, back, next), slider, shown);
}
