// The live view: what is happening, what comes next, money, history, and the plan below; kept up to date by the server.

import { h, name, put } from "./dom.js";
import { fateOf, fateOfReason } from "./fates.js";
import { actionWords, clock, count, dollars, monthly, span } from "./format.js";
import { lanes } from "./lanes.js";
import { planView } from "./plan_view.js";
import { plot } from "./plots.js";
import { legend } from "./run_view.js";
import { createState } from "./state.js";

/**
 * @typedef {import("./types").LiveDocument} LiveDocument
 * @typedef {import("./run_view.js").RunState} RunState
 */

const STEP_NAMES = ["taint", "launch", "ready", "drain", "gone"];
const GIVE_UP = 30_000;
const WARNINGS_OPEN = 5;
/** @type {Record<string, string>} */
const SOURCES = { cluster: "live", capture: "capture, as of its time", recording: "recording", simulation: "simulation" };
/** @type {Record<string, string>} What the time control says where there is nothing to control. */
const FIXED_TIME = { cluster: "A cluster's time is real time: this view follows it.", capture: "A capture stands still: it is one moment." };
const ONE_MOMENT = "A capture is one moment; dovetail record keeps what happens.";

/**
 * @param {Element} root
 */
export function connectView(root) {
  const status = h("p", { class: "live-status", role: "status" });
  const body = h("div");
  put(root, status, body);
  /** @type {ReturnType<typeof liveView> | null} */
  let view = null;
  let asked = 0;
  let connected = false;

  /**
   * @param {string} kind
   * @param {string} text
   */
  const say = (kind, text) => {
    status.className = `live-status ${kind}`;
    put(status, h("i", { class: "pulse" }), text);
  };

  const refresh = async () => {
    asked += 1;
    const mine = asked;
    try {
      const answer = await fetch("/api/state", { cache: "no-store" });
      if (!answer.ok) throw new Error(String(answer.status));
      const state = await answer.json();
      if (mine !== asked) return;
      if (state.document === null) {
        say("waiting", state.problem || "waiting for the first look …");
        return;
      }
      if (view === null) view = liveView(body, state.document);
      else view.update(state.document);
      const problem = state.problem || state.document.source.problem;
      if (problem) say("waiting", problem);
      else if (connected) say(state.document.source.kind === "capture" ? "still" : "live", statusText(state.document));
      window.document.documentElement.dataset.version = String(state.version);
    } catch {
      say("lost", "no answer; trying again …");
    }
  };

  say("waiting", "connecting …");
  /** @type {EventSource} */
  let events;
  let heard = Date.now();
  const open = () => {
    events = new EventSource("/api/events");
    events.onopen = () => {
      connected = true;
      heard = Date.now();
    };
    events.onmessage = () => {
      heard = Date.now();
      refresh();
    };
    events.onerror = () => {
      connected = false;
      say("lost", "connection lost; reconnecting …");
      // A browser tries again by itself, unless it was refused for good: then we do.
      if (events.readyState === EventSource.CLOSED) setTimeout(open, 2000);
    };
  };
  open();
  setInterval(() => {
    if (connected && Date.now() - heard > GIVE_UP) refresh();
  }, GIVE_UP / 2);
}

/**
 * @param {Element} root
 * @param {LiveDocument} first
 */
export function liveView(root, first) {
  const cards = h("div", { class: "cards" });
  const time = timeControl();
  const livesNote = h("p", { class: "soft" });
  const livesLegend = h("div");
  const livesBox = h("div");
  const plotsNote = h("p", { class: "soft" });
  const happening = h("div");
  const rolls = h("div");
  const next = h("ol", { class: "next" });
  const calendar = h("div", { class: "calendar" });
  const held = h("div");
  const paid = h("div");
  const events = h("ol", { class: "events" });
  const outcomes = h("div");
  const warnings = h("div");
  const plan = h("div");
  const blockers = h("div", { "aria-live": "polite" });
  const lines = {
    nodes: { name: "nodes", colour: 1, seconds: /** @type {number[]} */ ([]), values: /** @type {number[]} */ ([]) },
    cost: { name: "cost per hour", colour: 0, seconds: /** @type {number[]} */ ([]), values: /** @type {number[]} */ ([]) },
    pods: { name: "pods", colour: 2, seconds: /** @type {number[]} */ ([]), values: /** @type {number[]} */ ([]) },
    pending: { name: "waiting pods", colour: 3, seconds: /** @type {number[]} */ ([]), values: /** @type {number[]} */ ([]) },
  };
  const state = createState(/** @type {RunState} */ ({ at: 0, hover: null, from: 0, to: 1, hidden: new Set(), fates: new Set(), shown: [], playing: false, speed: 1, node: null, nodeOf: "" }));
  const start = first.history.since || first.now;
  const shared = { state, seconds: Infinity, start };

  const life = lanes({ run: lifeRun(first), state, seconds: axisEnd(first), start });
  let updating = false;
  /** @type {HTMLElement} */
  let plots;

  put(root,
    cards,
    time.element,
    h("div", { class: "two" },
      h("section", { class: "view", "aria-labelledby": "now-title" }, h("h2", { id: "now-title" }, "Happening now"), happening),
      h("section", { class: "view", "aria-labelledby": "next-title" }, h("h2", { id: "next-title" }, "What comes next, and when"), next)),
    h("section", { class: "view", "aria-labelledby": "rolls-title" }, h("h2", { id: "rolls-title" }, "Rolls"), rolls),
    plan,
    h("section", { class: "view", "aria-labelledby": "lanes-title" }, h("h2", { id: "lanes-title" }, "Every node's life"), livesNote, livesLegend, livesBox),
    h("section", { class: "view", "aria-labelledby": "history-title" }, h("h2", { id: "history-title" }, "Over time"),
      plotsNote,
      plots = h("div", { class: "plots" },
        plot({ ...shared, title: "Nodes", says: "Nodes that are there.", lines: [lines.nodes], format: (value) => value.toLocaleString("en-US") }),
        plot({ ...shared, title: "Cost per hour", says: "What they cost.", lines: [lines.cost], format: (value) => dollars(value) }),
        plot({ ...shared, title: "Pods", says: "Pods that are there.", lines: [lines.pods], format: (value) => value.toLocaleString("en-US") }),
        plot({ ...shared, title: "Waiting pods", says: "Pods without a node.", lines: [lines.pending], format: (value) => value.toLocaleString("en-US") }))),
    h("div", { class: "two" },
      h("section", { class: "view", "aria-labelledby": "held-title" }, h("h2", { id: "held-title" }, "Held back"), h("p", { class: "soft" }, "What the nodes at each check cost; not all of that could be saved."), held,
        h("button", { type: "button", onclick: () => askBlockers(blockers) }, "what would lifting each of these save?"), blockers),
      h("section", { class: "view", "aria-labelledby": "events-title" }, h("h2", { id: "events-title" }, "Since the start"), events)),
    h("section", { class: "view", "aria-labelledby": "outcomes-title" }, h("h2", { id: "outcomes-title" }, "Promised and kept, an hour later"), outcomes),
    h("section", { class: "view", "aria-labelledby": "calendar-title" }, h("h2", { id: "calendar-title" }, "How many nodes may leave, the coming week"), calendar),
    h("section", { class: "view", "aria-labelledby": "paid-title" }, h("h2", { id: "paid-title" }, "What is paid"), paid),
    h("div", { id: "nodes" }),
    warnings);

  /** @param {LiveDocument} document */
  const show = (document) => {
    put(cards, liveCards(document));
    time.show(document);
    put(rolls, document.rolls.length ? document.rolls.map(rollCard) : h("p", { class: "soft" }, "No roll is under way."));
    put(happening, document.commands.length ? document.commands.slice(0, 12).map(commandCard) : h("p", { class: "soft" }, idleText(document)));
    put(next, document.next.length ? document.next.map((entry) => h("li", null, h("strong", null, `in ${span(entry.seconds)}`), h("span", null, name(`${entry.what}${entry.pool ? `, pool ${entry.pool}` : ""}`)),
      entry.until !== entry.at ? h("span", { class: "soft" }, `the last in ${span((Date.parse(entry.until) - Date.parse(document.now)) / 1000)}`) : null)) : h("li", { class: "soft" }, "Nothing changes by time alone."));
    put(calendar, calendarRows(document));
    put(held, heldBars(document));
    put(paid, document.money.paid ? [h("p", null, name(document.money.paid)), commitmentBars(document)] : h("p", { class: "soft" }, "No commitments are set: every node costs its list price."));
    put(outcomes, outcomeRows(document));
    put(events, document.history.events.length ? document.history.events.slice(0, 14).map((entry) => h("li", { class: entry.kind }, h("span", { class: "soft" }, entry.at.slice(11, 19)), " ", name(entry.text))) : h("li", { class: "soft" }, "Nothing yet."));
    showWarnings(document.warnings);
    for (const line of Object.values(lines)) line.seconds.splice(0, Infinity, ...document.history.seconds);
    lines.nodes.values.splice(0, Infinity, ...document.history.nodes);
    lines.cost.values.splice(0, Infinity, ...document.history.cost);
    lines.pods.values.splice(0, Infinity, ...document.history.pods);
    lines.pending.values.splice(0, Infinity, ...document.history.pending);
    showLives(document);
    const { source } = document;
    updating = true;
    state.set({ to: axisEnd(document), at: source.kind === "recording" ? source.position : lastSecond(document) });
    updating = false;
  };

  /** @param {string[]} texts */
  const showWarnings = (texts) => {
    if (warnings.getAttribute("data-shown") === texts.join("\n")) return; // so that the list stays open
    warnings.setAttribute("data-shown", texts.join("\n"));
    const list = h("ul", null, texts.map((text) => h("li", null, name(text))));
    put(warnings, texts.length ? h("section", { class: "view" }, h("h2", null, "Warnings"),
      texts.length > WARNINGS_OPEN ? h("details", null, h("summary", null, "show them"), list) : list) : null);
  };

  /** @param {LiveDocument} document */
  const showLives = (document) => {
    const still = document.source.kind === "capture";
    put(livesNote, still ? ONE_MOMENT : document.source.kind === "recording"
      ? "One bar per node of the whole recording. Stripes: on its way out. Dots: pods had to leave. Click a bar to open its node at that moment."
      : "One bar per node since this view was opened. Stripes: on its way out. Dots: pods had to leave. Click a bar to open its node.");
    put(plotsNote, still ? ONE_MOMENT : "Drag to zoom, double-click to see all.");
    plots.hidden = still;
    if (still) return;
    const present = [...new Set(document.lives.fate)].sort().join();
    if (livesLegend.getAttribute("data-fates") !== present) {
      livesLegend.setAttribute("data-fates", present);
      state.set({ fates: new Set() });
      put(livesLegend, legend([{ machines: document.lives }], state));
    }
    if (!livesBox.firstChild) livesBox.append(life.element);
    life.update(lifeRun(document), axisEnd(document));
  };
  show(first);
  const below = planView(plan, /** @type {any} */ (first.plan), askNode);
  state.listen((now, changed) => {
    if (updating) return;
    if (changed.has("node") && now.node !== null) below.open(now.node);
    if (changed.has("at")) time.goTo(now.at);
  });
  return {
    /** @param {LiveDocument} document */
    update(document) {
      show(document);
      below.update(/** @type {any} */ (document.plan));
    },
  };
}

/** @param {string} node */
async function askNode(node) {
  const answer = await fetch(`/api/node?name=${encodeURIComponent(node)}`);
  return answer.json();
}

/** @param {Element} place */
async function askBlockers(place) {
  put(place, h("p", { class: "soft" }, "asking …"));
  try {
    const { blockers } = await (await fetch("/api/blockers")).json();
    put(place, blockers.length === 0 ? h("p", null, "Nothing is held back that could save money.") : h("ul", { class: "changes" }, blockers.slice(0, 8).map((/** @type {any} */ entry) =>
      h("li", null, h("strong", null, `${dollars(Number(entry.savingsPerHour), 4)} per hour: `), name(`${entry.kind} ${entry.name}`), ` (${entry.gate}, ${count(entry.nodes, "node")}). `, h("span", { class: "soft" }, name(entry.remedy))))));
  } catch {
    put(place, h("p", { class: "soft" }, "The server gave no answer; try again."));
  }
}

/** @param {LiveDocument} document */
function liveCards(document) {
  const { money, plan } = document;
  const nodes = /** @type {any} */ (plan).nodes.name.length;
  const pending = document.history.pending[document.history.pending.length - 1] ?? 0;
  /** @type {[string, string][]} */
  const figures = [
    [`${dollars(money.costPerHour)}/h`, `${count(nodes, "node")} now, ${monthly(money.costPerHour)} a month`],
    money.savedSoFar === null ? ["–", "saved so far: a recording does not say; try dovetail regret"]
      : document.source.kind === "capture" ? ["–", "saved so far: a capture is one moment"]
      : [dollars(money.savedSoFar), money.commands ? `saved so far, ${dollars(money.savedPerHour ?? 0)} per hour by ${count(money.commands, "command")}` : "saved so far"],
    [String(document.commands.length), document.commands.length === 1 ? "command under way" : "commands under way"],
    [String(pending), pending === 1 ? "pod waits for a node" : "pods wait for a node"],
  ];
  return figures.map(([figure, label]) => h("div", { class: "card" }, h("b", null, figure), label));
}

/** @param {LiveDocument} document */
function statusText(document) {
  const { source, now } = document;
  const title = window.document.querySelector("h1")?.textContent ?? "";
  const named = title.includes(source.name) ? "" : `: ${source.name}`;
  return `${SOURCES[source.kind]}${named}, ${now.replace("T", " ").replace("Z", " UTC")}${source.ended ? ", at its end" : ""}`;
}

/** @param {LiveDocument} document */
const lastSecond = (document) => document.history.seconds[document.history.seconds.length - 1] ?? 0;

/**
 * Where the time axis ends: a recording is known to its end, all else up to now.
 * @param {LiveDocument} document
 */
const axisEnd = (document) => Math.max(60, document.source.kind === "recording" ? document.source.length : lastSecond(document));

/**
 * The lives of a cluster, as the lanes draw a policy's.
 * @param {LiveDocument} document
 * @returns {import("./lanes.js").LaneRun}
 */
export function lifeRun(document) {
  const { lives } = document;
  const moves = lives.moved.flatMap((times, machine) => times.map((at) => ({ machine, at })));
  return {
    name: document.source.name,
    machines: { ...lives, command: lives.name.map(() => -1) },
    stays: { machine: moves.map((move) => move.machine), ended: moves.map((move) => move.at), moved: moves.map(() => 1) },
    commands: [],
    ongoing: true,
  };
}

/**
 * How fast time passes and where it is; it says so where that can't be changed.
 */
function timeControl() {
  const speeds = h("span", { class: "segmented", role: "group", "aria-label": "Speed" });
  const where = h("output", { class: "clock" });
  const slider = h("input", { type: "range", class: "time", min: 0, "aria-label": "Time", oninput: () => {
    dragged = true;
    put(where, span(Number(slider.value)));
  }, onchange: () => {
    dragged = false;
    goTo(Number(slider.value));
  } });
  const fixed = h("span", { class: "soft" });
  const element = h("div", { class: "scrubber live-time", role: "group", "aria-label": "Time control" }, speeds, slider, where, fixed);
  let dragged = false;
  let seekable = false;

  /** @param {number} seconds */
  const goTo = async (seconds) => {
    if (seekable) await post("/api/time", { seconds: Math.max(0, Math.min(Number(slider.max), seconds)) });
  };

  /** @param {LiveDocument} document */
  const show = (document) => {
    const { source } = document;
    seekable = source.seekable;
    const timed = source.length >= 0;
    for (const part of [speeds, slider, where]) part.hidden = !timed;
    fixed.hidden = timed;
    put(fixed, FIXED_TIME[source.kind] ?? "");
    if (!timed) return;
    if (speeds.getAttribute("data-speed") !== String(source.speed)) {
      speeds.setAttribute("data-speed", String(source.speed));
      put(speeds, source.speeds.map((speed) => h("button", { type: "button", "aria-pressed": String(speed === source.speed), onclick: () => post("/api/speed", { speed }) },
        speed === 0 ? "pause" : speed === 1 ? "real" : `${span(speed)}/s`)));
    }
    slider.disabled = !seekable;
    slider.title = seekable ? "" : "A simulation only goes forward.";
    slider.max = String(source.length);
    slider.step = String(Math.max(1, Math.round(source.length / 300)));
    if (dragged) return;
    slider.value = String(source.position);
    const text = `${clock(document.now, 0, true)} · ${span(source.position)} of ${span(source.length)}`;
    slider.setAttribute("aria-valuetext", text);
    put(where, text);
  };
  return { element, show, goTo };
}

/**
 * @param {string} address
 * @param {object} body
 */
async function post(address, body) {
  await fetch(address, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

/** @param {LiveDocument} document */
function idleText(document) {
  const actions = /** @type {any} */ (document.plan).actions;
  if (actions.length === 0) return "Nothing is under way, and nothing would be done now.";
  return `Nothing is under way. The next round: ${actions.map((/** @type {any} */ entry) => `${actionWords(entry.action)}, ${count(entry.nodes.length, "node")}, saving ${dollars(entry.savings, entry.savings < 1 ? 4 : 2)} per hour`).join("; ")}.`;
}

/** @param {import("./types").CommandNow} command */
function commandCard(command) {
  const fate = fateOf(fateOfReason(command.reason === "Cost" ? "Underutilized" : command.reason));
  const swatch = h("i", { class: "swatch" }, fate.letter);
  swatch.style.background = `var(${fate.colour})`;
  return h("div", { class: "command-now" },
    h("div", { class: "command-head" }, swatch, h("strong", null, actionWords(command.action)), h("span", { class: "soft" }, ` for ${span(command.seconds)}, by ${command.by}`)),
    h("p", null, name(`${command.nodes.slice(0, 4).join(", ")}${command.nodes.length > 4 ? ` and ${command.nodes.length - 4} more` : ""}`), command.podsLeft ? ` (${count(command.podsLeft, "pod")} left)` : "", command.draining ? `, draining for ${span(command.draining)}` : "", command.replacements.length ? h("span", { class: "soft" }, " replaced by ", name(command.replacements.join(", "))) : null),
    command.heldBy ? h("p", { class: "soft" }, `Held by ${command.heldBy}`) : null,
    h("ol", { class: "steps" }, command.steps.map((step, place) => (step === "none" ? null : h("li", { class: step }, h("span", null, STEP_NAMES[place]), h("span", { class: "visually-hidden" }, `: ${step}`))))));
}

/** @type {Record<string, string>} */
const ROLL_STATES = { done: "done", active: "active", waiting: "waiting", leftBehind: "left behind" };

/** @param {import("./types").Roll} roll */
function rollCard(roll) {
  const parts = /** @type {[number, string][]} */ ([[roll.inFlight, "in flight"], [roll.waiting, "waiting"], [roll.blocked, "blocked"]]);
  const more = parts.filter(([number]) => number).map(([number, word]) => `, ${number} ${word}`).join("");
  const whole = { value: "all nodes", total: roll.total, replaced: roll.replaced, state: "" };
  return h("div", { class: "command-now" },
    h("div", { class: "command-head" }, h("strong", null, name(roll.nodePool)), h("span", null, `${roll.replaced} of ${count(roll.total, "node")} replaced (${roll.cause})${more}`)),
    h("p", { class: roll.expectedEnd ? "soft" : "never" }, name(roll.why)),
    (roll.domains.length ? roll.domains : [whole]).map(domainRow),
    roll.blockers.length ? h("ul", { class: "changes" }, roll.blockers.map((entry) => h("li", null, h("strong", null, name(entry.node)), ` is blocked (${entry.gate}): `, name(entry.why))), roll.blocked > roll.blockers.length ? h("li", null, `and ${count(roll.blocked - roll.blockers.length, "more node")}`) : null) : null);
}

/** @param {import("./types").RollDomain} domain */
function domainRow(domain) {
  const bar = h("span", { class: "bar" });
  bar.style.width = `${(100 * domain.replaced) / Math.max(1, domain.total)}%`;
  return h("div", { class: "roll-row" }, h("span", { class: "roll-domain" }, name(domain.value)), h("span", { class: "bar-box" }, bar), h("span", { class: "bar-value wide" }, `${domain.replaced} of ${domain.total}${domain.state ? `, ${ROLL_STATES[domain.state]}` : ""}`));
}

/** @param {LiveDocument} document */
function calendarRows(document) {
  if (document.calendar.length === 0) return [h("p", { class: "soft" }, "There is no pool.")];
  const begin = Date.parse(document.now);
  const end = begin + 7 * 86400_000;
  const days = Array.from({ length: 7 }, (_, day) => new Date(begin + day * 86400_000));
  const head = h("div", { class: "cal-days", "aria-hidden": "true" }, days.map((day) => h("span", null, day.toUTCString().slice(0, 3))));
  const rows = document.calendar.flatMap((pool) => mergeReasons(pool.reasons).map(({ reasons, stretches }) => {
    const bar = h("div", { class: "cal-bar" }, stretches.map((stretch) => {
      const from = (Math.max(begin, Date.parse(stretch.begin)) - begin) / (end - begin);
      const to = (Math.min(end, Date.parse(stretch.end)) - begin) / (end - begin);
      const amount = stretch.allowed < 0 ? "∞" : String(stretch.allowed);
      const part = h("span", { class: stretch.allowed === 0 ? "cal-none" : "cal-some", title: `${stretch.begin} to ${stretch.end}: ${stretch.allowed < 0 ? "no limit" : count(stretch.allowed, "node")}` }, to - from > 0.025 ? amount : "");
      part.style.left = `${from * 100}%`;
      part.style.width = `${(to - from) * 100}%`;
      return part;
    }));
    const spoken = stretches.slice(0, 4).map((stretch) => `${stretch.allowed < 0 ? "no limit" : stretch.allowed} until ${stretch.end.slice(5, 16).replace("T", " ")}`).join(", ");
    return h("div", { class: "cal-row" }, h("div", { class: "cal-label" }, name(pool.pool), h("span", { class: "soft" }, ` ${reasons.join(", ")}`), h("span", { class: "visually-hidden" }, `: ${spoken}`)), bar);
  }));
  return [head, ...rows];
}

/**
 * Reasons with the same allowances share a row.
 * @param {import("./types").CalendarReason[]} reasons
 */
export function mergeReasons(reasons) {
  /** @type {Map<string, {reasons: string[], stretches: import("./types").CalendarStretch[]}>} */
  const rows = new Map();
  for (const { reason, stretches } of reasons) {
    const key = JSON.stringify(stretches);
    const row = rows.get(key);
    if (row) row.reasons.push(reason);
    else rows.set(key, { reasons: [reason], stretches });
  }
  return [...rows.values()].map((row) => (rows.size === 1 ? { ...row, reasons: ["every reason"] } : row));
}

/** @param {LiveDocument} document */
function outcomeRows(document) {
  const { outcomes } = document;
  if (outcomes.commands === 0) return [h("p", { class: "soft" }, "No command that this view has seen is an hour old.")];
  const share = outcomes.promised > 0 ? ` (${Math.round((100 * outcomes.saved) / outcomes.promised)} %)` : "";
  const head = ["action", "pools", "promised", "saved", "reopened", "pods restarted", "restarted again"];
  return [
    h("p", null, `${count(outcomes.commands, "command")} promised ${dollars(outcomes.promised)} for the hour after their end and saved ${dollars(outcomes.saved)}${share}; ${outcomes.held} held; ${count(outcomes.reopened, "node")} reopened; ${outcomes.movedAgain} of ${count(outcomes.pods, "pod")} restarted again.`),
    h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "outcomes table" }, h("table", null, h("thead", null, h("tr", null, head.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", null, outcomes.last.map((entry) => h("tr", null, h("td", null, actionWords(entry.action)), h("td", null, name(entry.pools.join(", "))), h("td", null, dollars(entry.promised, 4)), h("td", null, dollars(entry.saved, 4)), h("td", null, String(entry.reopened)), h("td", null, String(entry.pods)), h("td", null, String(entry.movedAgain))))))),
  ];
}

/** @param {LiveDocument} document */
function commitmentBars(document) {
  return h("table", { class: "bars" }, h("thead", { class: "visually-hidden" }, h("tr", null, h("th", { scope: "col" }, "commitment"), h("th", { scope: "col" }, "how much of it is used"))),
    h("tbody", null, document.money.commitments.map((row) => {
      const bar = h("i", { class: "bar" });
      bar.style.width = `${row.usedShare * 100}%`;
      return h("tr", null, h("th", { scope: "row" }, name(row.name)), h("td", null, h("span", { class: "bar-box" }, bar), h("span", { class: "bar-value wide" }, name(`${Math.round(row.usedShare * 100)} % used, ${row.free}`))));
    })));
}

/** @param {LiveDocument} document */
function heldBars(document) {
  const rows = document.money.held.slice(0, 10);
  if (rows.length === 0) return h("p", { class: "soft" }, "Nothing is held back.");
  const most = Math.max(...rows.map((row) => row.costPerHour), 1e-9);
  return h("table", { class: "bars" }, h("thead", { class: "visually-hidden" }, h("tr", null, h("th", { scope: "col" }, "check"), h("th", { scope: "col" }, "cost per hour of its nodes"))),
    h("tbody", null, rows.map((row) => {
      const bar = h("i", { class: "bar" });
      bar.style.width = `${(row.costPerHour / most) * 100}%`;
      return h("tr", null, h("th", { scope: "row" }, row.gate), h("td", null, h("span", { class: "bar-box" }, bar), h("span", { class: "bar-value wide" }, `${dollars(row.costPerHour)}/h, ${count(row.nodes, "node")}`)));
    })));
}
