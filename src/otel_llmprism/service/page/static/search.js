// The search view: the form is the address, so a search can be kept, shared and gone back to.
import { fetchServices, searchTraces } from "./api.js";
import { drawChart } from "./chart.js";
import { byId, clearProblem, fill, make, showProblem } from "./dom.js";
import { formatDuration, formatNumber, formatTime } from "./format.js";
import { wireHeader } from "./header.js";

const form = byId("search");
let services = new Map();

function readAddress() {
  for (const [name, value] of new URLSearchParams(location.search)) {
    const field = form.elements.namedItem(name);
    if (!field) continue;
    if (field.tagName === "SELECT" && ![...field.options].some((option) => option.value === value)) {
      field.append(make("option", { value }, value));
    }
    field.value = value;
  }
}

function writeAddress() {
  const filled = [...new FormData(form)].filter(([, value]) => value !== "");
  history.replaceState(null, "", `?${new URLSearchParams(filled)}`);
  return Object.fromEntries(filled);
}

function fillOptions(select, names, first) {
  const chosen = select.value;
  fill(select, make("option", { value: "" }, first), names.map((name) => make("option", { value: name }, name)));
  if (names.includes(chosen)) select.value = chosen;
}

function showOperations() {
  const service = form.elements.service.value;
  const names = service ? services.get(service) ?? [] : [...new Set([...services.values()].flat())];
  fillOptions(form.elements.operation, names.sort(), "any");
}

function makeRow(trace, longest) {
  const share = longest ? trace.durationNs / longest : 0;
  return make("tr", {},
    make("td", {}, make("a", { href: `/trace/${trace.traceId}` }, formatTime(trace.atMs))),
    make("td", {}, trace.name),
    make("td", {}, trace.service),
    make("td", {}, formatDuration(trace.durationNs), make("meter", { value: share, min: 0, max: 1, "aria-hidden": "true" })),
    make("td", { class: "number" }, formatNumber(trace.spans)),
    make("td", { class: trace.errors ? "number error" : "number" }, formatNumber(trace.errors)));
}

function drawTraces(traces) {
  const names = [...new Set(traces.map((trace) => trace.name))];
  const series = names.map((name) => {
    const own = traces.filter((trace) => trace.name === name);
    return {
      name, type: "scatter", mode: "markers", marker: { size: 7 },
      x: own.map((trace) => new Date(trace.atMs)),
      y: own.map((trace) => trace.durationNs / 1e6),
      customdata: own.map((trace) => trace.traceId),
      hovertemplate: "%{y:.3f} ms<extra>%{fullData.name}</extra>",
    };
  });
  return drawChart(byId("chart"), series, { yTitle: "ms", onPick: (id) => location.assign(`/trace/${id}`) });
}

async function search() {
  clearProblem();
  try {
    const { traces, isPartial } = await searchTraces(writeAddress());
    const longest = Math.max(0, ...traces.map((trace) => trace.durationNs));
    fill(byId("results"), traces.map((trace) => makeRow(trace, longest)));
    byId("summary").textContent = traces.length
      ? `${traces.length} traces, newest first.${isPartial ? " There may be more: narrow the search." : ""}`
      : "Nothing found. Widen the time, or send something to this address first.";
    if (traces.length) await drawTraces(traces);
    else byId("chart").hidden = true;
  } catch (error) {
    showProblem(error);
  }
}

async function start() {
  wireHeader();
  try {
    services = await fetchServices();
    fillOptions(form.elements.service, [...services.keys()].sort(), "any");
    readAddress();
    showOperations();
    readAddress();
  } catch (error) {
    showProblem(error);
  }
  form.addEventListener("submit", (event) => { event.preventDefault(); search(); });
  form.elements.service.addEventListener("change", showOperations);
  await search();
}

start();
