# Reads what engine_token_log wrote in the engine's process: the tokens of every step and every request, and
# what the scheduler itself said of each request's end.
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LENGTH = "FINISHED_LENGTH_CAPPED"
ABORTED = "FINISHED_ABORTED"
STOPPED = "FINISHED_STOPPED"


@dataclass(frozen=True, slots=True)
class BookedEnd:
    status: str
    prompt: int
    generated: int
    preemptions: int


@dataclass(slots=True)
class TokenBook:
    """One scheduler's doings, by its own request ids."""

    steps: list[Mapping[str, int]] = field(
        default_factory=list
    )  # tokens of each request; calls without: none
    tokens: Counter[str] = field(default_factory=Counter)
    steps_of: Counter[str] = field(default_factory=Counter)
    ends: dict[str, list[BookedEnd]] = field(default_factory=dict)
    preemptions: Counter[str] = field(default_factory=Counter)
    cached: dict[str, int] = field(default_factory=dict)  # at the first schedule
    recomputed: Counter[str] = field(default_factory=Counter)  # lost at preemptions, less found when resumed
    _lost: Counter[str] = field(default_factory=Counter)

    def predict_tokens(self, request: str) -> int:
        """Return what a request that ended by length must have been scheduled, by arithmetic alone."""
        (end,) = self.ends[request]
        return end.prompt - self.cached[request] + end.generated - 1 + self.recomputed[request]

    def list_ended(self, status: str) -> list[str]:
        return [request for request, ends in self.ends.items() if ends[-1].status == status]

    def take(self, line: Mapping[str, Any]) -> None:
        """Book one line of the log."""
        match line["event"]:
            case "schedule":
                self._take_schedule(line)
            case "preempted":
                self.preemptions[line["request"]] += 1
                self._lost[line["request"]] += line["lost"]
            case "ended":
                end = BookedEnd(line["status"], line["prompt"], line["generated"], line["preemptions"])
                self.ends.setdefault(line["request"], []).append(end)

    def _take_schedule(self, line: Mapping[str, Any]) -> None:
        if line["total"]:
            self.steps.append(line["tokens"])
        self.tokens.update(line["tokens"])
        self.steps_of.update(line["tokens"].keys())
        for request, computed in line["starts"].items():
            if request in self.cached:
                self.recomputed[request] += self._lost.pop(request, 0) - computed
            else:
                self.cached[request] = computed


def read_token_book(paths: Iterable[Path]) -> TokenBook:
    """Return the book of one scheduler; of several processes, only one may have scheduled."""
    book = TokenBook()
    (path,) = paths
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            book.take(json.loads(line))
    return book
