// All kinds of findings: what each means and what to do. A finding links to its own.
import { byId, fill, make } from "./dom.js";
import { wireHeader } from "./header.js";
import { describeKind, listKinds } from "./kinds.js";

wireHeader();
fill(byId("kinds"), listKinds().map((kind) => {
  const { title, means, mend } = describeKind(kind);
  return make("section", { id: kind, tabindex: "-1" },
    make("h2", {}, title, " ", make("code", {}, kind)),
    make("p", {}, means), make("p", {}, make("strong", {}, "What to do: "), mend),
    make("p", {}, make("a", { href: `/findings?kind=${kind}` }, "findings of this kind")));
}));
document.getElementById(location.hash.slice(1))?.focus();
