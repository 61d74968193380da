// Numbers as people read them. Durations come in nanoseconds, times in milliseconds.

const STEPS = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"]];

export function formatDuration(ns) {
  const [unit, name] = [...STEPS].reverse().find(([size]) => ns >= size) ?? STEPS[0];
  const value = ns / unit;
  return `${value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} ${name}`;
}

export function formatTime(ms) {
  const when = new Date(ms);
  const milliseconds = String(when.getMilliseconds()).padStart(3, "0");
  return `${when.toLocaleDateString("sv")} ${when.toLocaleTimeString("sv")}.${milliseconds}`; // ISO order, local time
}

export function formatNumber(value) {
  if (!Number.isFinite(value)) return String(value);
  return Number.isInteger(value) ? value.toLocaleString() : String(Number(value.toPrecision(6)));
}

export function formatValue(value) {
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : formatNumber(value);
  if (value !== null && typeof value === "object") return JSON.stringify(value);
  return String(value);
}

export function formatBytes(bytes) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes;
  let at = 0;
  for (; value >= 1024 && at < names.length - 1; at += 1) value /= 1024;
  return `${at && value < 100 ? value.toFixed(1) : value.toFixed(0)} ${names[at]}`;
}

export const formatSeconds = (s) => (s < 100 ? formatDuration(s * 1e9) : s < 7200 ? `${(s / 60).toFixed(1)} min` : `${(s / 3600).toFixed(1)} h`);

export const formatTimes = (observed, expected) => (expected > 0 ? `${(observed / expected).toFixed(2)}×` : "");

// A value of evidence: units are those of UCUM, as OpenTelemetry writes them.
export function formatQuantity(value, unit) {
  if (value === null || value === undefined) return "not told";
  if (unit === "s" && value === 0) return "0 s";
  if (unit === "s") return value < 0 ? `-${formatDuration(-value * 1e9)}` : formatDuration(value * 1e9);
  if (unit === "By") return formatBytes(value);
  if (unit === "{ratio}" || unit === "1") return `${formatNumber(Number((value * 100).toPrecision(3)))} %`;
  return `${formatNumber(Number(value.toPrecision(4)))} ${unit.replace(/[{}]/g, "").replace(/^1\//, "/")}`.trim();
}
