// All findings: what runs first, then what cost most. The form is the address, as in the search for traces.
import { fetchEngines, fetchFindings } from "./api.js";
import { byId, clearProblem, make, makeTable, refill, setText, showProblem } from "./dom.js";
import { lastedS, linkEngine, makeFindingLink, sayState, toMs } from "./findings-words.js";
import { formatNumber, formatSeconds, formatTime } from "./format.js";
import { wireHeader } from "./header.js";
import { describeKind, listKinds } from "./kinds.js";
import { keepAsking } from "./repeat.js";

const EVERY_MS = 2000;
const form = byId("filter");
const wanted = Object.fromEntries(new URLSearchParams(location.search));

function addOptions(select, pairs) {
  for (const [value, text] of pairs) {
    if (![...select.options].some((option) => option.value === value)) select.append(make("option", { value }, text));
  }
}

const makeRow = (finding) => [
  { number: `${formatNumber(Math.round(finding.lost_request_s ?? 0))} s` }, sayState(finding), makeFindingLink(finding),
  make("span", {}, make("a", { href: linkEngine(finding.engine), "data-key": `${finding.id} engine` }, finding.engine),
    finding.engines.length > 1 ? ` and ${finding.engines.length - 1} more` : ""),
  formatTime(toMs(finding.start_ns)).slice(0, 19), { number: formatSeconds(lastedS(finding)) }, finding.summary,
];

function sayNothing(engines) {
  const learning = engines.filter((one) => one.state === "learning").length;
  if (form.elements.state.value || form.elements.engine.value || form.elements.kind.value) return "No finding answers to this filter.";
  if (!engines.length) return "Nothing was found, and no engine has told of its steps yet.";
  return `Nothing was found on ${engines.length} engine${engines.length > 1 ? "s" : ""}${learning ? `, of which ${learning} still learn` : ""}.`;
}

async function refresh() {
  try {
    const filter = Object.fromEntries(new FormData(form));
    const [{ findings, found, active }, engines] = await Promise.all([fetchFindings(filter), fetchEngines()]);
    clearProblem();
    addOptions(form.elements.engine, engines.map((one) => [one.id, one.id]));
    setText("summary", findings.length
      ? `${formatNumber(active)} running in all. Shown: ${formatNumber(findings.length)} of ${formatNumber(found)}, what runs first, then what cost most request time.`
      : sayNothing(engines));
    refill(byId("findings"), findings.length
      ? makeTable(["Request time lost", "State", "Finding", "Engine", "Began", "Lasted", "Summary"], findings.map(makeRow)) : null);
  } catch (error) {
    showProblem(error);
  }
}

wireHeader();
addOptions(form.elements.kind, listKinds().map((kind) => [kind, describeKind(kind).title]));
for (const name of ["state", "engine", "kind"]) {
  const value = wanted[name];
  if (value) addOptions(form.elements[name], [[value, value]]);
  if (value) form.elements[name].value = value;
}
form.addEventListener("change", () => {
  const filled = [...new FormData(form)].filter(([, value]) => value !== "");
  history.replaceState(null, "", `?${new URLSearchParams(filled)}`);
  refresh();
});
keepAsking(refresh, EVERY_MS);
