// The live view: what flows through, what is stored, what was lost; asked for every two seconds.
import { fetchLive, fetchMetrics } from "./api.js";
import { drawChart } from "./chart.js";
import { byId, clearProblem, fill, make, showProblem } from "./dom.js";
import { formatBytes, formatNumber } from "./format.js";
import { wireHeader } from "./header.js";
import { keepAsking } from "./repeat.js";

const EVERY_MS = 2000;
const KEEP = 150;
const history = [];

function makeTable(title, heads, rows) {
  return [
    make("h2", {}, title),
    make("table", {},
      make("thead", {}, make("tr", {}, heads.map((head) => make("th", {}, head)))),
      make("tbody", {}, rows.map((cells) => make("tr", {}, cells.map((cell, at) =>
        make("td", { class: at === cells.length - 1 ? "number" : undefined }, cell)))))),
  ];
}

// A histogram's point carries its sum; people want to know how many and how long on average.
function formatPoint({ value, count, unit }) {
  const shown = unit.startsWith("{") ? "" : ` ${unit}`;
  if (count === null || count === undefined) return `${formatNumber(value ?? NaN)}${shown}`;
  return count ? `${formatNumber(count)} × ${formatNumber(value / count)}${shown}` : "0";
}

const formatLabels = (labels) => Object.entries(labels).filter(([, value]) => value !== "").map(([key, value]) => `${key}=${value}`).join(" ");

function showTables(live, metrics) {
  fill(byId("tables"),
    makeTable("Lost", ["stage and cause", "records"], live.lost.length
      ? live.lost.map(({ count, ...labels }) => [formatLabels(labels), formatNumber(count)])
      : [["nothing", "0"]]),
    metrics.length ? makeTable("Latest metrics", ["metric", "service", "attributes", "value"], metrics.map((point) => [
      point.metric, point.service, formatLabels(point.attributes), formatPoint(point)])) : null,
    makeTable("Counters of this process", ["counter", "labels", "value"], live.counters.map((one) => [
      one.name, formatLabels(one.labels), formatNumber(one.value)])));
}

async function refresh() {
  try {
    const [live, metrics] = await Promise.all([fetchLive(), fetchMetrics()]);
    clearProblem();
    byId("summary").textContent =
      `${formatNumber(Math.round(live.spansPerSecond))} spans/s · ${formatNumber(live.storedSpans)} spans stored in `
      + `${formatBytes(live.storedBytes)} · ${formatNumber(live.duplicates)} duplicates · ${formatNumber(live.forgotten)} forgotten`;
    history.push({ x: new Date(), y: live.spansPerSecond });
    if (history.length > KEEP) history.shift();
    showTables(live, metrics);
    await drawChart(byId("chart"), [{
      name: "spans/s", type: "scatter", mode: "lines", x: history.map((one) => one.x), y: history.map((one) => one.y),
    }], { yTitle: "spans/s" });
  } catch (error) {
    showProblem(error);
  }
}

wireHeader();
keepAsking(refresh, EVERY_MS);
