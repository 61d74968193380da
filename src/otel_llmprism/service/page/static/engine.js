// One engine: its cycles against what their work explains, below them the work, and what was found meanwhile.
// The address holds engine, length and end of the time shown; without an end it follows the present.
import { fetchEngines, fetchFindings, fetchSeries } from "./api.js";
import { drawCycles, drawWork, groupKinds, toBlocks } from "./cycle-chart.js";
import { byId, clearProblem, fill, make, makeTable, refill, setText, showProblem } from "./dom.js";
import { sayEngineState, sayModel } from "./engine-words.js";
import { lastedS, makeFindingLink, sayState, toMark, toMs } from "./findings-words.js";
import { formatNumber, formatQuantity, formatSeconds, formatTime, formatTimes } from "./format.js";
import { wireHeader } from "./header.js";
import { keepAsking } from "./repeat.js";

const EVERY_MS = 2000;
const MAX_ROWS = 300;
const MIN_SECONDS = 10;
const MISSING = 0.1; // of the time shown
const address = new URLSearchParams(location.search);
const engineId = address.get("id") ?? "";
const length = byId("seconds");
let shown = [];
let turn = 0;

const readEnd = () => address.get("end") ?? undefined;

function chooseLength(seconds) {
  const value = String(seconds);
  if (![...length.options].some((option) => option.value === value)) length.append(make("option", { value }, formatSeconds(seconds)));
  length.value = value;
}

function goTo(seconds, endMs) {
  chooseLength(seconds);
  address.set("seconds", length.value);
  if (endMs === undefined || endMs >= Date.now()) address.delete("end");
  else address.set("end", String(Math.round(endMs * 1000)));
  history.replaceState(null, "", `?${address}`);
  return refresh();
}

const endMs = () => (readEnd() ? Number(readEnd()) / 1000 : Date.now());

function sayLimit({ is_alarm: isAlarm, upper_s: upper, atMs }, isLearning) {
  const said = isAlarm ? "▲ above the limit" : upper !== null ? "✓ within the limit" : isLearning ? "◌ learning" : "◌ no limit yet";
  return `${said}, ${formatTime(atMs).slice(11, 19)}`;
}

function showNow(blocks, isLearning) {
  const none = isLearning ? "not yet" : "never seen such work";
  const rows = [...groupKinds(blocks)].map(([kind, own]) => {
    const last = own.at(-1);
    return [kind, { number: formatQuantity(last.observed_s, "s") },
      { number: last.expected_s === null ? none : formatQuantity(last.expected_s, "s") },
      { number: last.upper_s === null ? "not yet" : formatQuantity(last.upper_s, "s") },
      { number: last.expected_s === null ? "" : formatTimes(last.observed_s, last.expected_s) }, sayLimit(last, isLearning)];
  });
  refill(byId("now"), rows.length ? makeTable(["Steps", "Observed", "Expected", "Upper limit", "Observed / expected", "Newest block"], rows) : null);
}

function showFindings(findings) {
  refill(byId("incidents"), findings.length
    ? makeTable(["Finding", "State", "Began", "Lasted"], findings.map((one) => [
      makeFindingLink(one), sayState(one), formatTime(toMs(one.start_ns)), { number: formatSeconds(lastedS(one)) }]))
    : make("p", { class: "hint" }, "Nothing was found in this time."));
}

function showBlocks() {
  if (!byId("blocks").open) return;
  const rows = shown.slice(-MAX_ROWS).reverse().map((one) => [formatTime(one.atMs), one.kind, { number: formatNumber(one.steps) },
    { number: formatQuantity(one.observed_s, "s") }, { number: one.expected_s === null ? "" : formatQuantity(one.expected_s, "s") },
    { number: one.upper_s === null ? "" : formatQuantity(one.upper_s, "s") }, { number: formatQuantity(one.gap_s, "s") }, one.is_alarm ? "▲ above" : ""]);
  fill(byId("block-rows"), makeTable(["Begin", "Steps of", "Steps", "Observed", "Expected", "Upper limit", "Gaps", "Limit"], rows));
}

// Blocks are kept for a while only; the charts' empty left side is said, lest it look like an idle engine.
function sayWhatIsAwaited(engine, blocks, from, to) {
  if (blocks.length) return blocks[0].atMs - from > (to - from) * MISSING ? `Nothing is kept from before ${formatTime(blocks[0].atMs).slice(0, 19)}.` : "";
  const seen = engine ? ` Last seen ${formatTime(toMs(engine.last_seen_ns))}.` : "";
  return `No steps in this time.${seen}`;
}

// A finding is shaded when any of it lies in the time shown.
const overlaps = ({ beginMs, endMs: end }, from, to) => end >= from && beginMs <= to;

async function refresh() {
  const seconds = Number(length.value);
  turn += 1;
  const own = turn;
  try {
    const [engines, series, { findings }] = await Promise.all([
      fetchEngines(), fetchSeries(engineId, seconds, readEnd()), fetchFindings({ engine: engineId })]);
    if (own !== turn) return; // something else was asked for meanwhile
    clearProblem();
    const engine = engines.find((one) => one.id === engineId);
    const [from, to] = [toMs(series.begin_ns), toMs(series.end_ns)];
    shown = toBlocks(series.blocks);
    setText("summary", engine ? `${sayEngineState(engine)}. ${sayModel(engine)}` : "");
    setText("awaited", sayWhatIsAwaited(engine, shown, from, to));
    byId("range").textContent = `${formatTime(from).slice(0, 19)} to ${formatTime(to).slice(0, 19)}${readEnd() ? "" : ", following the present"}`;
    const found = findings.filter((one) => overlaps(toMark(one, Date.now()), from, to));
    showNow(shown, engine?.state === "learning");
    showFindings(found);
    showBlocks();
    const marks = found.map((one) => toMark(one, to)).map((mark) => ({ ...mark, beginMs: Math.max(mark.beginMs, from), endMs: Math.min(mark.endMs, to) }));
    const options = { range: [from, to], marks, onRange: (begin, end) => goTo(Math.max(MIN_SECONDS, Math.ceil((end - begin) / 1000)), end) };
    await drawCycles(byId("cycles"), shown, options);
    await drawWork(byId("work"), shown, options);
  } catch (error) {
    showProblem(error);
  }
}

wireHeader();
byId("heading").textContent = engineId || "Engine";
document.title = `${engineId} · otel-llmprism`;
if (Number(address.get("seconds")) >= 1) chooseLength(Number(address.get("seconds")));
length.addEventListener("change", () => goTo(length.value, readEnd() && endMs()));
byId("earlier").addEventListener("click", () => goTo(length.value, endMs() - Number(length.value) * 500));
byId("later").addEventListener("click", () => goTo(length.value, endMs() + Number(length.value) * 500));
byId("present").addEventListener("click", () => goTo(length.value));
byId("blocks").addEventListener("toggle", showBlocks);
keepAsking(() => (readEnd() && shown.length ? undefined : refresh()), EVERY_MS);
