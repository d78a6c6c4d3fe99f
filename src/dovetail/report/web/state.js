// What all parts of a view share: a few values, and who wants to know when one of them changes.

/**
 * @template T
 * @typedef {object} State
 * @property {T} now
 * @property {(change: Partial<T>) => void} set
 * @property {(listener: (now: T, changed: Set<keyof T>) => void) => void} listen
 */

/**
 * @template {object} T
 * @param {T} first
 * @returns {State<T>}
 */
export function createState(first) {
  /** @type {((now: T, changed: Set<keyof T>) => void)[]} */
  const listeners = [];
  const state = {
    now: first,
    /** @param {Partial<T>} change */
    set(change) {
      /** @type {Set<keyof T>} */
      const changed = new Set();
      for (const key of /** @type {(keyof T)[]} */ (Object.keys(change))) {
        if (state.now[key] !== change[key]) changed.add(key);
      }
      if (changed.size === 0) return;
      state.now = { ...state.now, ...change };
      for (const listener of listeners) listener(state.now, changed);
    },
    /** @param {(now: T, changed: Set<keyof T>) => void} listener */
    listen(listener) {
      listeners.push(listener);
    },
  };
  return state;
}
