// The page of a run: story, lanes of two policies on one time axis, the cluster at any moment, linked plots.

import { clusterView, nodeNow, staysByMachine } from "./cluster.js";
import { h, name, put } from "./dom.js";
import { FATES, fateOf, fateOfReason } from "./fates.js";
import { actionWords, clock, count, dollars, span } from "./format.js";
import { lanes, sentenceOf } from "./lanes.js";
import { plot, soFar } from "./plots.js";
import { scrubber } from "./scrubber.js";
import { createState } from "./state.js";

/**
 * @typedef {import("./types").RunDocument} RunDocument
 * @typedef {import("./types").PolicyRun} PolicyRun
 * @typedef {object} RunState
 * @property {number} at
 * @property {number | null} hover
 * @property {number} from
 * @property {number} to
 * @property {Set<string>} hidden policies whose lines are off
 * @property {Set<string>} fates fates that are dimmed
 * @property {number[]} shown places of the policies side by side
 * @property {boolean} playing
 * @property {number} speed seconds of the run per second
 * @property {string | null} node
 * @property {string} nodeOf
 */

/**
 * @param {Element} root
 * @param {RunDocument} document
 */
export function runView(root, document) {
  const { seconds, start, policies } = document;
  const state = createState(/** @type {RunState} */ ({
    at: firstMoment(document), hover: null, from: 0, to: lastMoment(document), hidden: new Set(), fates: new Set(), shown: document.compare,
    playing: false, speed: seconds > 7200 ? 300 : 60, node: null, nodeOf: "",
  }));
  const side = h("div", { class: "lanes-pair" });
  const moment = h("div", { class: "moment-pair" });
  const told = h("div", { class: "told-pair" });

  const drawPair = () => {
    const runs = state.now.shown.map((place) => policies[place]);
    put(side, runs.map((run) => h("section", { class: "lane-panel" }, laneHead(run), lanes({ run, state, seconds, start }).element)));
    put(moment, runs.map((run) => clusterView({ run, state })));
    put(told, runs.map((run) => commandList(run, state, start)));
  };

  /** @param {PolicyRun} run */
  const laneHead = (run) => h("div", { class: "lane-head" },
    h("h3", null, h("i", { class: `dot b${policies.indexOf(run) % 6}` }), name(run.name)),
    h("p", { class: "soft" }, `${count(run.machines.name.length, "node")}, ${count(run.figures.podsDisrupted, "pod restart")}, ${count(run.figures.shortLivedNodes, "node")} under 15 minutes, ${dollars(run.figures.cost)}`));

  put(root,
    h("div", { class: "timewise" },
    h("section", { class: "view", "aria-labelledby": "lanes-title" },
      h("div", { class: "section-head" },
        h("h2", { id: "lanes-title" }, "Every node's life"),
        pickers(document, state, drawPair)),
      h("p", { class: "soft" }, "One bar per node, from launch to end. Stripes: on its way out. Dots: a pod that had to leave. Click a bar to see that moment below."),
      legend(policies, state),
      zoomControls(state, seconds),
      side),
    h("section", { class: "view", "aria-labelledby": "moment-title" },
      h("h2", { id: "moment-title" }, "The cluster at one moment"),
      h("p", { class: "soft" }, "Each box is a node, as wide as its CPUs, filled by the CPU its pods ask for; the line at its foot is memory. A marked top edge: the pod has just come. A dashed box is on its way out."),
      document.podsShown ? null : h("p", { class: "soft" }, "This run has too many pods to draw each of them; nodes are shown without."),
      moment,
      nodePanel(document, state),
      h("h3", null, "What was done, and why"),
      told),
    scrubber({ state, seconds, start, moments: () => state.now.shown.flatMap((place) => policies[place].commands.map((command) => command.at)) })),
    h("section", { class: "view", "aria-labelledby": "plots-title" },
      h("h2", { id: "plots-title" }, "Over time"),
      h("p", { class: "soft" }, "All plots share the time of the lanes. Drag to zoom, double-click to see all."),
      toggles(policies, state),
      h("div", { class: "plots" }, allPlots(document, state))),
    gates(policies));
  drawPair();
}

/**
 * The moment to open with: when the first policy is busiest.
 * @param {RunDocument} document
 */
export function firstMoment(document) {
  const { commands } = document.policies[document.compare[0]];
  let best = 0;
  let most = 0;
  for (const { at } of commands) {
    const busy = commands.filter((other) => other.at <= at && (other.ended < 0 || other.ended > at)).length;
    if (busy > most) [best, most] = [at, busy];
  }
  return best;
}

/**
 * The time to show up to at first: all of it, or as far as something happens to nodes.
 * @param {RunDocument} document
 */
export function lastMoment(document) {
  const ends = document.policies.flatMap((policy) => [
    ...policy.machines.ended, ...policy.machines.started, ...policy.commands.map((command) => Math.max(command.at, command.ended)),
  ]);
  const last = Math.max(...ends, 0) * 1.12;
  return last > 60 && last < document.seconds * 0.75 ? last : document.seconds;
}

/**
 * @param {RunDocument} document
 * @param {import("./state.js").State<RunState>} state
 * @param {() => void} redraw
 */
function pickers(document, state, redraw) {
  if (document.policies.length < 2) return null;
  return h("div", { class: "pickers" }, state.now.shown.map((chosen, side) => {
    const select = h("select", {
      "aria-label": side === 0 ? "First policy" : "Second policy",
      onchange: () => {
        const shown = [...state.now.shown];
        shown[side] = Number(select.value);
        state.set({ shown });
        redraw();
      },
    }, document.policies.map((policy, place) => h("option", { value: place, selected: place === chosen }, policy.name)));
    return [side === 1 ? h("span", { class: "soft" }, " against ") : null, select];
  }).flat());
}

/**
 * @param {{machines: {fate: string[]}}[]} policies
 * @param {import("./state.js").State<RunState>} state
 */
export function legend(policies, state) {
  const present = new Set(policies.flatMap((policy) => policy.machines.fate));
  return h("div", { class: "legend", role: "group", "aria-label": "Fates" }, Object.keys(FATES).filter((fate) => present.has(fate)).map((fate) => {
    const { label, letter, colour } = FATES[fate];
    const swatch = h("i", { class: "swatch" }, letter);
    swatch.style.background = `var(${colour})`;
    const button = h("button", {
      type: "button", class: "chip", "aria-pressed": "true",
      onclick: () => {
        const fates = new Set(state.now.fates);
        if (!fates.delete(fate)) fates.add(fate);
        button.setAttribute("aria-pressed", String(!fates.has(fate)));
        state.set({ fates });
      },
    }, swatch, label);
    return button;
  }));
}

/**
 * @param {import("./state.js").State<RunState>} state
 * @param {number} seconds
 */
function zoomControls(state, seconds) {
  /** @param {number} factor */
  const zoom = (factor) => {
    const width = Math.min(seconds, Math.max(30, (state.now.to - state.now.from) * factor));
    const from = Math.min(Math.max(0, state.now.at - width / 2), seconds - width);
    state.set({ from, to: from + width });
  };
  /** @param {number} share */
  const shift = (share) => {
    const width = state.now.to - state.now.from;
    const from = Math.min(Math.max(0, state.now.from + width * share), seconds - width);
    state.set({ from, to: from + width });
  };
  const shown = h("span", { class: "soft" });
  const say = () => put(shown, state.now.to - state.now.from < seconds - 1 ? `${span(state.now.to - state.now.from)} of ${span(seconds)} shown` : `all ${span(seconds)} shown`);
  state.listen((_, changed) => {
    if (changed.has("from") || changed.has("to")) say();
  });
  say();
  return h("div", { class: "zoom", role: "group", "aria-label": "Zoom" },
    h("button", { type: "button", onclick: () => zoom(0.5), "aria-label": "Zoom in" }, "+"),
    h("button", { type: "button", onclick: () => zoom(2), "aria-label": "Zoom out" }, "−"),
    h("button", { type: "button", onclick: () => shift(-0.5), "aria-label": "Earlier" }, "‹"),
    h("button", { type: "button", onclick: () => shift(0.5), "aria-label": "Later" }, "›"),
    h("button", { type: "button", onclick: () => state.set({ from: 0, to: seconds }) }, "all"),
    shown);
}

/**
 * The commands around the chosen time: the ones before it, and the next one.
 * @param {PolicyRun} run
 * @param {import("./state.js").State<RunState>} state
 * @param {string} start
 */
function commandList(run, state, start) {
  const list = h("ol", { class: "commands", "aria-label": `Commands of ${run.name}` });
  let drawn = "";
  const draw = () => {
    const at = state.now.at;
    const past = run.commands.filter((command) => command.at <= at).slice(-4).reverse();
    const next = run.commands.find((command) => command.at > at);
    const key = `${past.map((command) => `${command.at}${isUnderWay(command, at)}`).join()}|${next ? next.at : ""}`;
    if (key === drawn) return;
    drawn = key;
    put(list,
      next ? h("li", { class: "coming" }, h("span", { class: "soft" }, `next, ${clock(start, next.at, true)}: ${actionWords(next.action)}`)) : null,
      past.map((command) => commandItem(command, at, start)),
      past.length === 0 && !next ? h("li", { class: "soft" }, "No command in this run.") : null);
  };
  state.listen((_, changed) => {
    if (changed.has("at")) draw();
  });
  draw();
  return h("div", null, h("h4", null, name(run.name)), list);
}

/**
 * @param {import("./types").RunCommand} command
 * @param {number} at
 */
function isUnderWay(command, at) {
  return command.ended < 0 || command.ended > at;
}

/**
 * @param {import("./types").RunCommand} command
 * @param {number} at
 * @param {string} start
 */
function commandItem(command, at, start) {
  const fate = fateOf(fateOfReason(command.reason));
  const swatch = h("i", { class: "swatch" }, fate.letter);
  swatch.style.background = `var(${fate.colour})`;
  const state = isUnderWay(command, at) ? "under way" : `${command.outcome} after ${span(command.ended - command.at)}`;
  return h("li", { class: isUnderWay(command, at) ? "under-way" : "" },
    h("div", { class: "command-head" }, swatch, h("strong", null, actionWords(command.action)), h("span", { class: "soft" }, ` ${clock(start, command.at, true)}, ${state}`)),
    h("p", null, name(command.why)));
}

/**
 * The node that was chosen: its life and what is on it now.
 * @param {RunDocument} document
 * @param {import("./state.js").State<RunState>} state
 */
function nodePanel(document, state) {
  const panel = h("div", { class: "node-panel", "aria-live": "polite" });
  const draw = () => {
    const run = document.policies.find((policy) => policy.name === state.now.nodeOf);
    const index = run && state.now.node !== null ? run.machines.name.indexOf(state.now.node) : -1;
    panel.hidden = !run || index < 0;
    if (!run || index < 0) return;
    const command = run.commands[run.machines.command[index]];
    put(panel,
      h("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => state.set({ node: null }) }, "×"),
      nodeNow(run, staysByMachine(run)[index], index, state.now.at),
      h("p", null, name(sentenceOf(run, index, document.start))),
      command ? h("p", { class: "because" }, name(`${actionWords(command.action)}: ${command.why}`)) : null);
  };
  state.listen((_, changed) => {
    if (changed.has("node") || (state.now.node !== null && changed.has("at") && !state.now.playing)) draw();
  });
  draw();
  return panel;
}

/**
 * @param {PolicyRun[]} policies
 * @param {import("./state.js").State<RunState>} state
 */
function toggles(policies, state) {
  return h("div", { class: "legend", role: "group", "aria-label": "Policies" }, policies.map((policy, place) => {
    const button = h("button", {
      type: "button", class: "chip", "aria-pressed": "true",
      onclick: () => {
        const hidden = new Set(state.now.hidden);
        if (!hidden.delete(policy.name)) hidden.add(policy.name);
        button.setAttribute("aria-pressed", String(!hidden.has(policy.name)));
        state.set({ hidden });
      },
    }, h("i", { class: `dot b${place % 6}` }), name(policy.name));
    return button;
  }));
}

/**
 * @param {RunDocument} document
 * @param {import("./state.js").State<RunState>} state
 */
function allPlots(document, state) {
  const { seconds, start, policies } = document;
  /** @param {(run: PolicyRun) => number[]} pick */
  const lines = (pick) => policies.map((run, place) => ({ name: run.name, colour: place, seconds: run.series.seconds, values: pick(run) }));
  const whole = (/** @type {number} */ value) => value.toLocaleString("en-US");
  const shared = { state, seconds, start };
  return [
    plot({ ...shared, title: "Nodes", says: "Machines that run.", lines: lines((run) => run.series.nodes), format: whole }),
    plot({ ...shared, title: "Cost per hour", says: "What they cost.", lines: lines((run) => run.series.costPerHour), format: (value) => dollars(value) }),
    plot({ ...shared, title: "Pod restarts so far", says: "A line that keeps climbing is churn.", lines: lines((run) => soFar(run.series.podsDisrupted)), format: whole }),
    plot({ ...shared, title: "Waiting pods", says: "The most pods without a node at once, since the point before.", lines: lines((run) => run.series.pending), format: whole }),
  ];
}

/**
 * On average, how many nodes each gate held.
 * @param {PolicyRun[]} policies
 */
function gates(policies) {
  const panels = policies.map((policy) => {
    const averages = Object.entries(policy.series.gates)
      .map(([gate, samples]) => ({ gate, nodes: samples.reduce((sum, value) => sum + value, 0) / Math.max(1, samples.length) }))
      .filter((entry) => entry.nodes >= 0.05 && entry.gate !== "eligible")
      .sort((a, b) => b.nodes - a.nodes || (a.gate < b.gate ? -1 : 1))
      .slice(0, 8);
    if (averages.length === 0) return null;
    const most = averages[0].nodes;
    return h("div", { class: "gate-panel" }, h("h3", null, name(policy.name)), h("table", { class: "bars" },
      h("thead", { class: "visually-hidden" }, h("tr", null, h("th", { scope: "col" }, "gate"), h("th", { scope: "col" }, "nodes on average"))),
      h("tbody", null, averages.map(({ gate, nodes }) => {
        const bar = h("i", { class: "bar" });
        bar.style.width = `${(nodes / most) * 100}%`;
        return h("tr", null, h("th", { scope: "row" }, gate), h("td", null, h("span", { class: "bar-box" }, bar), h("span", { class: "bar-value" }, nodes.toFixed(1))));
      }))));
  });
  if (panels.every((panel) => panel === null)) return null;
  return h("section", { class: "view", "aria-labelledby": "gates-title" },
    h("h2", { id: "gates-title" }, "What held nodes back"),
    h("p", { class: "soft" }, "On average, how many nodes each check held."),
    h("div", { class: "gate-panels" }, panels));
}
