// How a finding is said in words and links, the same in every view.
import { make } from "./dom.js";
import { formatTime } from "./format.js";
import { describeKind } from "./kinds.js";

export const toMs = (ns) => ns / 1e6;

export const nameSubject = ({ subject }) => `${subject.type} ${subject.id}`;

export const isOver = (finding) => finding.state === "closed";

// The sign stands beside the word, so that a column is read at a glance and without colour.
export function sayState(finding) {
  const said = [finding.is_dismissed ? "○ no incident" : isOver(finding) ? "○ closed" : "● running"];
  if (finding.is_acknowledged) said.push("acknowledged");
  if (finding.silenced_until_ns) said.push(`silenced until ${formatTime(toMs(finding.silenced_until_ns)).slice(0, 16)}`);
  return said.join(", ");
}

export function makeFindingLink(finding) {
  return make("a", { href: `/finding/${encodeURIComponent(finding.id)}`, "data-key": finding.id },
    `${describeKind(finding.kind).title} on ${nameSubject(finding)}`);
}

export const linkEngine = (id, seconds, endMs) => {
  const end = endMs === undefined ? [] : [["end", String(Math.round(endMs * 1000))]];
  return `/engine?${new URLSearchParams([["id", id], ...(seconds ? [["seconds", seconds]] : []), ...end])}`;
};

export const lastedS = (finding) => Math.max(0, (finding.end_ns - finding.start_ns) / 1e9);

// What charts shade; a finding that still runs reaches to the right edge.
export function toMark(finding, nowMs) {
  return { beginMs: toMs(finding.start_ns), endMs: isOver(finding) ? toMs(finding.end_ns) : nowMs, text: describeKind(finding.kind).title };
}
