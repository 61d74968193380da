// All kinds of findings: what each means and what to do. A finding links to its own.
import { byId, fill, make } from "./dom.js";
import { wireHeader } from "./header.js";
import { describeKind, listKinds } from "./kinds.js";

wireHeader();
const isMeasured = (kind) => (describeKind(kind).measured ? 0 : 1);
fill(byId("kinds"), listKinds().sort((left, right) => isMeasured(left) - isMeasured(right)).map((kind) => {
  const { title, means, measured, mend } = describeKind(kind);
  return make("section", { id: kind, tabindex: "-1" },
    make("h2", {}, title, " ", make("code", {}, kind)),
    make("p", {}, means),
    measured ? make("p", {}, make("strong", {}, "What is measured: "), measured) : make("p", { class: "hint" }, "Not looked for yet."),
    make("p", {}, make("strong", {}, "What to do: "), mend),
    make("p", {}, make("a", { href: `/findings?kind=${kind}` }, "findings of this kind")));
}));
document.getElementById(location.hash.slice(1))?.focus();
