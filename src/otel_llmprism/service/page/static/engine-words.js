// How far an engine's sentinel is, in one sentence.
import { formatNumber, formatSeconds } from "./format.js";

function sayLearning({ trained_steps: have, wanted_steps: want }) {
  return `◌ learning: ${formatNumber(have)} ${want ? `of about ${formatNumber(want)} ` : ""}steps; nothing alarms before`;
}

const SILENT_MS = 60_000;

// An engine that ended keeps its last state; that it ended is said too.
function saySilence({ last_seen_ns: seen }) {
  const ms = Date.now() - seen / 1e6;
  return ms > SILENT_MS ? `, silent for ${formatSeconds(ms / 1000)}` : "";
}

export function sayEngineState(engine) {
  return `${sayState(engine)}${saySilence(engine)}`;
}

function sayState({ state, model, findings_open: open }) {
  if (state === "learning") return sayLearning(model);
  if (state === "alarm") return `▲ in alarm: ${formatNumber(open)} finding${open === 1 ? "" : "s"} running`;
  return "✓ watching";
}

export function sayModel({ model }) {
  if (!model.version) return "No expected time yet.";
  const error = model.error === null ? "" : `, usually off by ${(model.error * 100).toFixed(1)} %`;
  return `Expected time ${model.version}, learned from ${formatNumber(model.trained_steps)} steps${error}.${model.note ? ` ${model.note}` : ""}`;
}
