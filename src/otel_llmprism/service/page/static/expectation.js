// What a step's span says about its work: how long the cycle took against what the work explains.
import { formatDuration } from "./format.js";

const S = 1e9;
const readNumber = (value) => (typeof value === "number" && Number.isFinite(value) && value > 0 ? value : null);

// Gives null for a span that says nothing of it. `share`: the part of the cycle that was expected, at most 1.
export function readExpectation({ attributes, durationNs }) {
  const expectedS = readNumber(attributes["llmprism.step.expected_s"]);
  if (expectedS === null) return null;
  const residual = attributes["llmprism.step.residual"];
  const cycleS = readNumber(attributes["llmprism.step.cycle_s"]) ?? durationNs / S;
  const ratio = Number.isFinite(residual) ? Math.exp(residual) : cycleS / expectedS;
  return {
    expectedS, cycleS, ratio, share: Math.min(1, 1 / ratio), isAnomalous: attributes["llmprism.step.anomalous"] === true,
    short: `${ratio.toFixed(2)}× expected`,
    text: `Cycle ${formatDuration(cycleS * S)}, ${formatDuration(expectedS * S)} expected from its work: ${ratio.toFixed(2)} times that.`,
  };
}
