// One finding: what it says, what was measured, when, on which steps and requests, and what a person says about it.
import { fetchFinding, fetchSeries, sayOfFinding } from "./api.js";
import { drawCycles, drawWork, toBlocks } from "./cycle-chart.js";
import { byId, clearProblem, fill, make, makeTable, refill, setText, showProblem } from "./dom.js";
import { isOver, lastedS, linkEngine, nameSubject, sayState, toMark, toMs } from "./findings-words.js";
import { formatNumber, formatQuantity, formatSeconds, formatTime, formatTimes } from "./format.js";
import { wireHeader } from "./header.js";
import { describeKind } from "./kinds.js";
import { keepAsking } from "./repeat.js";

const EVERY_MS = 2000;
const AROUND_S = 60;
const MAX_LINKS = 50;
const MAX_RANGES = 8;
const ALTERNATIVE = "alternative";
const id = decodeURIComponent(location.pathname.split("/").pop());

const makeFact = ([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value));

function showFacts(finding) {
  const again = finding.occurrence ? `${finding.occurrence + 1} times` : "once";
  fill(byId("facts"), [
    ["State", sayState(finding)], ["Began", formatTime(toMs(finding.start_ns))], ["Lasted", formatSeconds(lastedS(finding))],
    ["Request time lost", `${formatNumber(Math.round(finding.lost_request_s ?? 0))} request-seconds`],
    ["More than expected", formatSeconds(Math.max(0, finding.excess_s ?? 0))],
    ["Confidence", finding.confidence === null ? "not told" : `${Math.round(finding.confidence * 100)} %`], ["Happened", again],
    ["Ranks", finding.affected.ranks.join(", ")],
  ].filter(([, value]) => value !== "").map(makeFact));
}

const makeSignal = (one) => [
  one.signal, { number: formatQuantity(one.observed, one.unit) }, { number: formatQuantity(one.expected, one.unit) },
  { number: one.observed === null ? "" : formatTimes(one.observed, one.expected) }, one.detail,
];

// Other causes that were weighed come as evidence too: their weight against that of the finding's own.
function showEvidence({ evidence }) {
  const signals = evidence.filter((one) => one.signal !== ALTERNATIVE);
  const others = evidence.filter((one) => one.signal === ALTERNATIVE);
  fill(byId("evidence"),
    signals.length ? makeTable(["Signal", "Observed", "Expected", "Observed / expected", "Detail"], signals.map(makeSignal))
      : make("p", { class: "hint" }, "No evidence was told."),
    others.length ? make("h3", {}, "Also weighed, and less likely") : null,
    others.length ? makeTable(["Weight", "That of this finding", "Cause"], others.map((one) => [
      { number: formatQuantity(one.observed, one.unit) }, { number: formatQuantity(one.expected, one.unit) }, one.detail])) : null);
}

function showMeaning({ kind }) {
  const { means, measured, mend } = describeKind(kind);
  fill(byId("meaning"), means ? make("p", {}, means) : null,
    measured ? make("p", {}, make("strong", {}, "What is measured: "), measured) : null, mend ? make("p", {}, make("strong", {}, "What to do: "), mend) : null,
    make("p", {}, make("a", { href: `/kinds#${kind}` }, `${kind} among all kinds`)));
}

const makeState = (one) => [
  formatTime(toMs(one.state === "closed" ? one.end_ns : one.updated_ns)),
  { number: formatSeconds(Math.max(0, one.excess_s ?? 0)) }, { number: `${formatNumber(Math.round(one.lost_request_s ?? 0))} s` },
  { number: one.score === null ? "" : formatNumber(Number(one.score.toPrecision(3))) },
  { number: one.confidence === null ? "" : `${Math.round(one.confidence * 100)} %` },
  one.occurrence ? `${one.state}, occurrence ${one.occurrence + 1}` : one.state,
];

function showTimeline({ history }) {
  const began = { number: "" };
  fill(byId("timeline"), makeTable(["Time", "More than expected", "Request time lost", "Score", "Confidence", "State"],
    [[formatTime(toMs(history[0].start_ns)), began, began, began, began, "began"], ...history.map(makeState)]));
}

function makeStep(step) {
  const name = `step ${step.step}${step.why === "affected" ? "" : `, ${step.why}`}`;
  if (!step.trace_id || step.is_stored === false) return make("li", {}, name, " ", make("small", {}, "(not kept)"));
  return make("li", {}, make("a", { href: `/trace/${step.trace_id}?span=${step.span_id}`, "data-key": `${step.run} ${step.step}` }, name));
}

function makeRequest(request) {
  const query = new URLSearchParams([["show", "request"], ["tags", `llmprism.request.id=${request}`], ["lookback", "168h"]]);
  return make("li", {}, make("a", { href: `/?${query}`, "data-key": `request ${request}` }, request));
}

// Numbers that follow each other as one range: 3, 4, 5, 9 -> "3 to 5, 9".
function sayRanges(numbers) {
  const ranges = [];
  for (const number of [...numbers].sort((left, right) => left - right)) {
    if (ranges.at(-1)?.[1] === number - 1) ranges.at(-1)[1] = number;
    else ranges.push([number, number]);
  }
  return ranges.slice(0, MAX_RANGES).map(([from, to]) => (from === to ? String(from) : `${from} to ${to}`)).join(", ") + (ranges.length > MAX_RANGES ? ", …" : "");
}

function makeList(title, items, makeItem, rest) {
  const more = items.length > MAX_LINKS ? make("p", { class: "hint" }, `and ${formatNumber(items.length - MAX_LINKS)} more`) : null;
  return make("section", {}, make("h3", {}, title),
    items.length ? make("ul", { class: "links" }, items.slice(0, MAX_LINKS).map(makeItem)) : rest ? null : make("p", { class: "hint" }, "none told"),
    more, rest ? make("p", { class: "hint" }, rest) : null);
}

// Those told apart, and those that can be looked at; the rest by number.
function makeSteps(steps) {
  const isListed = (step) => step.why !== "affected" || (step.trace_id && step.is_stored !== false);
  const rest = steps.filter((step) => !isListed(step)).map((step) => step.step);
  return makeList(`Steps (${formatNumber(steps.length)})`, steps.filter(isListed), makeStep,
    rest.length ? `Not kept as traces: ${sayRanges(rest)}. The ledger still has them: otel-llmprism steps --as-trace.` : "");
}

function showAffected(finding) {
  const spans = finding.trace_id ? `/trace/${finding.trace_id}` : `/?show=finding&tags=llmprism.finding.id%3D${encodeURIComponent(finding.id)}&lookback=168h`;
  refill(byId("affected"), makeSteps(finding.steps),
    makeList(`Requests (${formatNumber(finding.affected.requests.length)})`, finding.affected.requests, makeRequest),
    make("p", {}, make("a", { href: spans, "data-key": "spans" }, "Spans of this finding")));
}

async function showChart(finding) {
  const endMs = isOver(finding) ? toMs(finding.end_ns) + AROUND_S * 1000 : Date.now();
  const seconds = Math.ceil((endMs - toMs(finding.start_ns)) / 1000) + AROUND_S;
  refill(byId("engine"), finding.engines.map((engine) => make("p", {}, "Engine ",
    make("a", { href: linkEngine(engine, seconds, isOver(finding) ? endMs : undefined), "data-key": engine }, `${engine} at that time`))));
  const series = await fetchSeries(finding.engine, seconds, Math.round(endMs * 1000)).catch(() => ({ blocks: [] }));
  const [blocks, options] = [toBlocks(series.blocks), { marks: [toMark(finding, endMs)], range: [endMs - seconds * 1000, endMs] }];
  await drawCycles(byId("cycles"), blocks, options);
  await drawWork(byId("work"), blocks, options); // overload, a full cache and gaps show here, not in the cycles
}

let before = "";

async function show(finding) {
  const { title } = describeKind(finding.kind);
  byId("heading").textContent = `${title} on ${nameSubject(finding)}`;
  document.title = `${title} on ${nameSubject(finding)} · otel-llmprism`;
  setText("summary", finding.summary);
  byId("acts").hidden = isOver(finding) && finding.is_dismissed;
  byId("acknowledge").disabled = finding.is_acknowledged;
  byId("dismiss").disabled = finding.is_dismissed;
  byId("end-silence").hidden = finding.silenced_until_ns === null;
  const isNew = before !== JSON.stringify(finding);
  before = JSON.stringify(finding);
  if (isNew) for (const part of [showFacts, showEvidence, showMeaning, showTimeline, showAffected]) part(finding);
  if (isNew || !isOver(finding)) await showChart(finding); // while it runs, time goes on
}

async function refresh() {
  try {
    await show(await fetchFinding(id));
    clearProblem();
  } catch (error) {
    showProblem(error);
  }
}

async function say(what, body) {
  try {
    await show(await sayOfFinding(id, what, body));
    clearProblem("say");
    byId("said").textContent = `Done at ${formatTime(Date.now()).slice(11, 19)}.`;
  } catch (error) {
    showProblem(error, "say");
  }
}

wireHeader();
byId("acknowledge").addEventListener("click", () => say("acknowledge"));
byId("silence").addEventListener("click", () => say("silence", { seconds: Number(byId("silence-for").value) }));
byId("end-silence").addEventListener("click", () => say("silence", { seconds: 0 }));
byId("dismiss").addEventListener("click", () => {
  if (window.confirm("Close this finding as no incident? Its steps then count as normal.")) say("dismiss");
});
keepAsking(refresh, EVERY_MS);
