// Numbers, money and times for people; the same words as the command line.

/**
 * A length of time in its two largest units: `14m`, `2h5m`, `3d4h`.
 * @param {number} seconds
 * @returns {string}
 */
export function span(seconds) {
  const whole = Math.round(seconds);
  if (whole < 0) return `-${span(-seconds)}`;
  if (whole < 60) return `${whole}s`;
  /** @type {[number, string, number, string][]} */
  const units = [[86400, "d", 3600, "h"], [3600, "h", 60, "m"], [60, "m", 1, "s"]];
  for (const [size, unit, small, smallUnit] of units) {
    if (whole >= size) {
      const part = Math.floor((whole % size) / small);
      return `${Math.floor(whole / size)}${unit}${part ? `${part}${smallUnit}` : ""}`;
    }
  }
  return "";
}

/**
 * `$1,234.50`.
 * @param {number} amount
 * @param {number} [places]
 */
export function dollars(amount, places = 2) {
  const sign = amount < 0 ? "-" : "";
  return `${sign}$${Math.abs(amount).toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places })}`;
}

/** The bill of a month (730 hours), without cents: `$23,535`. @param {number} perHour */
export function monthly(perHour) {
  return dollars(perHour * 730, 0);
}

/** An action's name for people: `delete empty`, `replace for cost`. @param {string} action */
export function actionWords(action) {
  return action.replace(/[A-Z].*/, (what) => (what === "Cost" ? " for cost" : ` ${what.toLowerCase()}`));
}

/**
 * `1 node`, `3 nodes`.
 * @param {number} number
 * @param {string} noun
 * @param {string} [plural]
 */
export function count(number, noun, plural) {
  return `${number.toLocaleString("en-US")} ${number === 1 ? noun : (plural ?? `${noun}s`)}`;
}

/**
 * `a, b and 3 more`.
 * @param {string[]} items
 * @param {number} [shown]
 */
export function listing(items, shown = 3) {
  if (items.length <= shown) {
    return items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} and ${items[items.length - 1]}`;
  }
  return `${items.slice(0, shown).join(", ")} and ${items.length - shown} more`;
}

/** @param {number} share */
export function percent(share) {
  return `${Math.round(share * 100)} %`;
}

/**
 * A byte count as `7.5 GiB`.
 * @param {number} bytes
 */
export function memory(bytes) {
  for (const [size, unit] of /** @type {[number, string][]} */ ([[2 ** 30, "GiB"], [2 ** 20, "MiB"]])) {
    if (bytes >= size) return `${+(bytes / size).toFixed(1)} ${unit}`;
  }
  return `${bytes} B`;
}

/**
 * The time of day, and the day where the run is longer than one.
 * @param {string} start
 * @param {number} seconds
 * @param {boolean} [withSeconds]
 */
export function clock(start, seconds, withSeconds = false) {
  const when = new Date(Date.parse(start) + seconds * 1000).toISOString();
  return when.slice(11, withSeconds ? 19 : 16);
}

/**
 * Even steps for a time axis.
 * @param {number} from
 * @param {number} to
 * @param {number} most
 */
export function timeTicks(from, to, most) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
  const step = steps.find((size) => (to - from) / size <= most) ?? 604800;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to + 1e-6; at += step) ticks.push(at);
  return ticks;
}

/**
 * Steps of 1, 2 or 5 times a power of ten from 0 up to at least `top`.
 * @param {number} top
 * @param {number} [about]
 */
export function niceTicks(top, about = 4) {
  if (!(top > 0)) return [0, 1];
  const rough = top / about;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999999) ?? power * 10;
  const ticks = [];
  for (let index = 0; index * step < top + step * 0.999; index += 1) ticks.push(+(index * step).toPrecision(10));
  return ticks;
}

/**
 * The last place whose value is at most `wanted`; -1 where there is none. `values` rise.
 * @param {ArrayLike<number>} values
 * @param {number} wanted
 */
export function lastAt(values, wanted) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= wanted) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
