// The live view: what is happening, what comes next, money, history, and the plan below; kept up to date by the server.

import { h, name, put } from "./dom.js";
import { fateOf, fateOfReason } from "./fates.js";
import { count, dollars, span } from "./format.js";
import { planView } from "./plan_view.js";
import { plot } from "./plots.js";
import { createState } from "./state.js";

/**
 * @typedef {import("./types").LiveDocument} LiveDocument
 * @typedef {import("./run_view.js").RunState} RunState
 */

const STEP_NAMES = ["taint", "launch", "ready", "drain", "gone"];
const GIVE_UP = 30_000;

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
      else if (connected) say("live", `live: ${state.document.source.name}, ${state.document.now.replace("T", " ").replace("Z", " UTC")}${state.document.source.ended ? ", the scenario has ended" : ""}`);
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
  const speed = h("div", { class: "speed", role: "group", "aria-label": "Speed of the simulation" });
  const happening = h("div");
  const next = h("ol", { class: "next" });
  const calendar = h("div", { class: "calendar" });
  const held = h("div");
  const events = h("ol", { class: "events" });
  const outcomes = h("div");
  const warnings = h("div");
  const plan = h("div");
  const blockers = h("div", { "aria-live": "polite" });
  const lines = {
    nodes: { name: "nodes", colour: 1, seconds: /** @type {number[]} */ ([]), values: /** @type {number[]} */ ([]) },
    cost: { name: "cost per hour", colour: 0, seconds: /** @type {number[]} */ ([]), values: /** @type {number[]} */ ([]) },
    pending: { name: "waiting pods", colour: 3, seconds: /** @type {number[]} */ ([]), values: /** @type {number[]} */ ([]) },
  };
  const state = createState(/** @type {RunState} */ ({ at: 0, hover: null, from: 0, to: 1, hidden: new Set(), fates: new Set(), shown: [], playing: false, speed: 1, node: null, nodeOf: "" }));
  const start = first.history.since || first.now;
  const shared = { state, seconds: Infinity, start };

  put(root,
    cards,
    speed,
    h("div", { class: "two" },
      h("section", { class: "view", "aria-labelledby": "now-title" }, h("h2", { id: "now-title" }, "Happening now"), happening),
      h("section", { class: "view", "aria-labelledby": "next-title" }, h("h2", { id: "next-title" }, "What comes next, and when"), next)),
    h("section", { class: "view", "aria-labelledby": "calendar-title" }, h("h2", { id: "calendar-title" }, "How many nodes may leave, the coming week"), calendar),
    h("div", { class: "two" },
      h("section", { class: "view", "aria-labelledby": "held-title" }, h("h2", { id: "held-title" }, "Held back"), h("p", { class: "soft" }, "What the nodes at each check cost; not all of that could be saved."), held,
        h("button", { type: "button", onclick: () => askBlockers(blockers) }, "what could be saved by lifting what?"), blockers),
      h("section", { class: "view", "aria-labelledby": "events-title" }, h("h2", { id: "events-title" }, "Since the start"), events)),
    h("section", { class: "view", "aria-labelledby": "outcomes-title" }, h("h2", { id: "outcomes-title" }, "Promised and kept, an hour later"), outcomes),
    h("section", { class: "view", "aria-labelledby": "history-title" }, h("h2", { id: "history-title" }, "Over time"),
      h("div", { class: "plots" },
        plot({ ...shared, title: "Nodes", says: "Nodes that are there.", lines: [lines.nodes], format: (value) => value.toLocaleString("en-US") }),
        plot({ ...shared, title: "Cost per hour", says: "What they cost.", lines: [lines.cost], format: (value) => dollars(value) }),
        plot({ ...shared, title: "Waiting pods", says: "Pods without a node.", lines: [lines.pending], format: (value) => value.toLocaleString("en-US") }))),
    warnings,
    plan);

  /** @param {LiveDocument} document */
  const show = (document) => {
    put(cards, liveCards(document));
    showSpeed(speed, document);
    put(happening, document.commands.length ? document.commands.slice(0, 12).map(commandCard) : h("p", { class: "soft" }, idleText(document)));
    put(next, document.next.length ? document.next.map((entry) => h("li", null, h("strong", null, `in ${span(entry.seconds)}`), h("span", null, name(`${entry.what}${entry.pool ? `, pool ${entry.pool}` : ""}`)),
      entry.until !== entry.at ? h("span", { class: "soft" }, `last at ${entry.until.slice(0, 16).replace("T", " ")}`) : null)) : h("li", { class: "soft" }, "Nothing changes by time alone."));
    put(calendar, calendarRows(document));
    put(held, heldBars(document));
    put(outcomes, outcomeRows(document));
    put(events, document.history.events.length ? document.history.events.slice(0, 14).map((entry) => h("li", { class: entry.kind }, h("span", { class: "soft" }, entry.at.slice(11, 19)), " ", name(entry.text))) : h("li", { class: "soft" }, "Nothing yet."));
    put(warnings, document.warnings.length ? h("section", { class: "view" }, h("h2", null, count(document.warnings.length, "warning")), h("ul", null, document.warnings.map((text) => h("li", null, name(text))))) : null);
    for (const line of Object.values(lines)) line.seconds.splice(0, Infinity, ...document.history.seconds);
    lines.nodes.values.splice(0, Infinity, ...document.history.nodes);
    lines.cost.values.splice(0, Infinity, ...document.history.cost);
    lines.pending.values.splice(0, Infinity, ...document.history.pending);
    const last = document.history.seconds[document.history.seconds.length - 1] ?? 0;
    state.set({ to: Math.max(60, last), at: last });
  };
  show(first);
  const below = planView(plan, /** @type {any} */ (first.plan), askNode);
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
    [`${dollars(money.costPerHour)}/h`, `${count(nodes, "node")} now`],
    [dollars(money.savedSoFar), money.commands ? `saved so far, ${dollars(money.savedPerHour)} per hour by ${count(money.commands, "command")}` : "saved so far"],
    [String(document.commands.length), document.commands.length === 1 ? "command under way" : "commands under way"],
    [String(pending), pending === 1 ? "pod waits for a node" : "pods wait for a node"],
  ];
  return figures.map(([figure, label]) => h("div", { class: "card" }, h("b", null, figure), label));
}

/**
 * @param {Element} place
 * @param {LiveDocument} document
 */
function showSpeed(place, document) {
  const { source } = document;
  if (source.speeds.length === 0 || place.getAttribute("data-speed") === String(source.speed)) return;
  place.setAttribute("data-speed", String(source.speed));
  put(place, h("span", { class: "soft" }, "simulated time: "), h("span", { class: "segmented" }, source.speeds.map((speed) => h("button", {
    type: "button", "aria-pressed": String(speed === source.speed),
    onclick: async () => {
      await fetch("/api/speed", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ speed }) });
    },
  }, speed === 0 ? "pause" : speed === 1 ? "real" : `${span(speed)}/s`))));
}

/** @param {LiveDocument} document */
function idleText(document) {
  const actions = /** @type {any} */ (document.plan).actions;
  if (actions.length === 0) return "Nothing is under way, and nothing would be done now.";
  return `Nothing is under way. A round would now do ${actions.map((/** @type {any} */ entry) => `${entry.action} of ${count(entry.nodes.length, "node")}, saving ${dollars(entry.savings, 4)} per hour`).join("; ")}.`;
}

/** @param {import("./types").CommandNow} command */
function commandCard(command) {
  const fate = fateOf(fateOfReason(command.reason === "Cost" ? "Underutilized" : command.reason));
  const swatch = h("i", { class: "swatch" }, fate.letter);
  swatch.style.background = `var(${fate.colour})`;
  return h("div", { class: "command-now" },
    h("div", { class: "command-head" }, swatch, h("strong", null, command.action), h("span", { class: "soft" }, ` for ${span(command.seconds)}, by ${command.by}`)),
    h("p", null, name(`${command.nodes.slice(0, 4).join(", ")}${command.nodes.length > 4 ? ` and ${command.nodes.length - 4} more` : ""}`), command.podsLeft ? ` (${count(command.podsLeft, "pod")} left)` : "", command.replacements.length ? h("span", { class: "soft" }, " replaced by ", name(command.replacements.join(", "))) : null),
    h("ol", { class: "steps" }, command.steps.map((step, place) => (step === "none" ? null : h("li", { class: step }, h("span", null, STEP_NAMES[place]), h("span", { class: "visually-hidden" }, `: ${step}`))))));
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
  if (outcomes.commands === 0) return [h("p", { class: "soft" }, "No command has ended an hour ago since this view was opened.")];
  const share = outcomes.promised > 0 ? ` (${Math.round((100 * outcomes.saved) / outcomes.promised)} %)` : "";
  const head = ["action", "pools", "promised", "saved", "reopened", "pods moved", "moved again"];
  return [
    h("p", null, `${count(outcomes.commands, "command")} promised ${dollars(outcomes.promised)} for the hour after their end and saved ${dollars(outcomes.saved)}${share}; ${outcomes.held} held; ${count(outcomes.reopened, "node")} reopened; ${outcomes.movedAgain} of ${count(outcomes.pods, "pod")} moved again.`),
    h("table", null, h("thead", null, h("tr", null, head.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", null, outcomes.last.map((entry) => h("tr", null, h("td", null, entry.action), h("td", null, name(entry.pools.join(", "))), h("td", null, dollars(entry.promised, 4)), h("td", null, dollars(entry.saved, 4)), h("td", null, String(entry.reopened)), h("td", null, String(entry.pods)), h("td", null, String(entry.movedAgain)))))),
  ];
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
