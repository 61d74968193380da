# All engines' models: who learns, who borrows from a peer, what a new model says against the frozen reference
# and against peers. The trainer comes in; bounded, the engine that was silent longest leaves.
from collections import OrderedDict
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Protocol

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.baseline import BASELINE_FITS, BASELINE_REFUSED
from otel_llmprism.service.sentinel.engine_model import EngineModel, InUse, TrainJob, TrainResult
from otel_llmprism.service.sentinel.facts import EngineFacts
from otel_llmprism.service.sentinel.parts import Model, Parts

DRIFT_LIMIT = 0.05
CHANGE_LIMIT = 0.02  # a new model that says nearly the same as the old one needs no new limits
MAX_PEERS = 8  # that a new model is held against
_SMALLEST_SAMPLE = 50


class Trainer(Protocol):
    """Fits somewhere, one job at a time; neither call waits, unless it is the synchronous one of a replay."""

    def submit(self, job: TrainJob) -> bool:
        """Take a job; False: busy, ask again."""
        ...

    def poll(self) -> list[TrainResult]: ...


@dataclass(frozen=True, slots=True)
class Drift:
    engine_id: str
    version: str
    against: str  # reference or peer
    kind: int
    ratio: float  # what is expected now / what the other expects


@dataclass(frozen=True, slots=True)
class Fitted:
    """A new model of an engine; `raw` is what is stored."""

    engine_id: str
    peers: str
    version: str
    raw: bytes
    trained_steps: int
    drifts: tuple[Drift, ...]
    is_reference: bool
    reference_raw: bytes = b""
    is_first: bool = True
    is_changed: bool = True  # from the model before


@dataclass(frozen=True, slots=True)
class StoredModel:
    engine_id: str
    peers: str
    trained_steps: int
    raw: bytes
    reference_raw: bytes = b""


class ModelBook:
    def __init__(
        self, parts: Parts, trainer: Trainer, counters: Counters, max_engines: int, seed: int
    ) -> None:
        self._parts = parts
        self._trainer = trainer
        self._counters = counters
        self._max_engines = max_engines
        self._seed = seed
        self._models: OrderedDict[str, EngineModel] = OrderedDict()
        self._peers: dict[str, str] = {}  # engine: its peer key
        self._stored: OrderedDict[str, StoredModel] = OrderedDict()  # of engines not heard of yet
        self._held: dict[str, TrainResult] = {}  # of engines with an open finding

    def find(self, engine_id: str, facts: EngineFacts) -> EngineModel:
        """Return an engine's model; a new engine begins with its stored one, else with a peer's."""
        model = self._models.get(engine_id)
        if model is None:
            seed = self._seed + len(self._models)
            model = self._models[engine_id] = EngineModel(engine_id, self._parts.build_sample(seed), seed)
            self._peers[engine_id] = facts.peers
            self._begin(model, facts)
            if len(self._models) > self._max_engines:
                left, _ = self._models.popitem(last=False)
                self._peers.pop(left, None)
        self._models.move_to_end(engine_id)
        return model

    def adopt(self, stored: StoredModel) -> None:
        """Have a stored model ready for its engine and its peers."""
        self._stored[stored.engine_id] = stored
        if len(self._stored) > self._max_engines:
            self._stored.popitem(last=False)

    def train(self, blocked: Container[str]) -> None:
        """Hand on at most one job that is due; an engine that is `blocked` by a finding waits."""
        for model in self._models.values():
            job = None if model.key in blocked else model.find_job()
            if job is None:
                continue
            if not self._trainer.submit(job):
                model.defer()
            return

    def collect(self, blocked: Container[str]) -> Iterator[Fitted]:
        """Install what was fitted, and say what it says against the ones before.

        A new model begins new charts, so that of an engine with an open finding waits for its end.
        """
        self._held |= {result.key: result for result in self._trainer.poll()}
        for result in [own for key, own in self._held.items() if key not in blocked]:
            del self._held[result.key]
            own = self._models.get(result.key)
            if own is None:
                continue
            fitted = self._load(result.raw, own.learned) if result.raw else None
            self._counters.add(BASELINE_FITS, outcome="done" if fitted else "failed")
            before = own.install(fitted)
            if fitted is not None:
                yield self._describe(own, fitted, before)

    def _begin(self, model: EngineModel, facts: EngineFacts) -> None:
        own = self._stored.pop(model.key, None)
        if own is not None:
            model.current = self._load(own.raw, own.trained_steps)
            model.reference = self._load(own.reference_raw, 0) if own.reference_raw else None
        if model.current is None and facts.peers:
            model.current = self._borrow(model.key, facts.peers)

    def _borrow(self, engine_id: str, peers: str) -> InUse | None:
        for peer in self._list_peers(engine_id, peers):
            return InUse(peer.model, peer.raw, peer.trained_steps, is_borrowed=True)
        for stored in reversed(self._stored.values()):
            if stored.peers == peers and (found := self._load(stored.raw, stored.trained_steps)) is not None:
                return InUse(found.model, found.raw, found.trained_steps, is_borrowed=True)
        return None

    def _list_peers(self, engine_id: str, peers: str) -> list[InUse]:
        others = (self._models[other] for other, key in self._peers.items() if key == peers != "")
        known = [
            other.current
            for other in others
            if other.key != engine_id and other.current is not None and not other.current.is_borrowed
        ]
        return sorted(known, key=lambda own: -own.trained_steps)[:MAX_PEERS]

    def _load(self, raw: bytes, trained_steps: int) -> InUse | None:
        try:
            return InUse(self._parts.load(raw), raw, trained_steps)
        except ValueError:
            self._counters.add(BASELINE_REFUSED, why="damaged")
            return None

    def _describe(self, own: EngineModel, fitted: InUse, before: InUse | None) -> Fitted:
        others: list[tuple[str, Model]] = []
        if own.reference is not None and own.reference is not fitted:
            others.append(("reference", own.reference.model))
        peers = self._peers.get(own.key, "")
        others += [("peer", peer.model) for peer in self._list_peers(own.key, peers)[:1]]
        sample = own.sample.read()[0]
        change = {} if before is None else self._parts.compare(fitted.model, before.model, sample)
        drifts = [
            Drift(own.key, fitted.model.version, against, kind, ratio)
            for against, other in others
            if len(sample.kind) >= _SMALLEST_SAMPLE
            for kind, ratio in self._parts.compare(fitted.model, other, sample).items()
        ]
        own.note = _describe_drift(drifts)
        return Fitted(
            own.key,
            peers,
            fitted.model.version,
            fitted.raw,
            fitted.trained_steps,
            tuple(drifts),
            is_reference=own.reference is fitted,
            reference_raw=b"" if own.reference is None else own.reference.raw,
            is_first=before is None,
            is_changed=before is None or any(abs(ratio - 1) > CHANGE_LIMIT for ratio in change.values()),
        )


def _describe_drift(drifts: list[Drift]) -> str:
    worst = max(drifts, key=lambda drift: abs(drift.ratio - 1), default=None)
    if worst is None or abs(worst.ratio - 1) <= DRIFT_LIMIT:
        return ""
    whom = "the frozen reference" if worst.against == "reference" else "a peer"
    return f"expects {worst.ratio:.2f} times what {whom} expects"
