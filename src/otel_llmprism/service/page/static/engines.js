// The engines: what each is, whether it is watched yet, and what was found on it.
import { fetchEngines } from "./api.js";
import { byId, clearProblem, make, makeTable, refill, setText, showProblem } from "./dom.js";
import { sayEngineState } from "./engine-words.js";
import { linkEngine, toMs } from "./findings-words.js";
import { formatNumber, formatTime } from "./format.js";
import { wireHeader } from "./header.js";
import { keepAsking } from "./repeat.js";

const EVERY_MS = 2000;

const makeRow = (engine) => [
  make("a", { href: linkEngine(engine.id), "data-key": engine.id }, engine.id), engine.name, engine.job, sayEngineState(engine),
  { number: engine.findings_open ? make("a", { href: `/findings?engine=${encodeURIComponent(engine.id)}&state=active`, "data-key": `${engine.id} findings` },
    formatNumber(engine.findings_open)) : "0" },
  { number: formatNumber(engine.steps) }, formatTime(toMs(engine.last_seen_ns)),
];

async function refresh() {
  try {
    const engines = await fetchEngines();
    clearProblem();
    setText("summary", engines.length
      ? `${engines.length} engine${engines.length > 1 ? "s" : ""}, ${engines.filter((one) => one.state === "alarm").length} in alarm.`
      : "No engine has told of its steps yet. One shows up here about a second after an instrumented engine does its first steps.");
    refill(byId("engines"), engines.length
      ? makeTable(["Engine", "Kind", "Job", "State", "Findings", "Steps", "Last seen"], engines.map(makeRow)) : null);
  } catch (error) {
    showProblem(error);
  }
}

wireHeader();
keepAsking(refresh, EVERY_MS);
