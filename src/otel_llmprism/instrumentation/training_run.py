# The run of a training: begun at its first finished iteration, found or made together with the other ranks,
# and the records of each iteration. Iterations in, ring records out. Never waits: what cannot be written
# yet stays in a bounded queue.
import os
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from otel_llmprism.instrumentation.collective_window import WINDOW
from otel_llmprism.instrumentation.device_time import DevicePairs
from otel_llmprism.instrumentation.engine_run import (
    ENGINE_ID_VARIABLE,
    FOLDER_VARIABLE,
    RUN_VARIABLE,
    EngineRun,
)
from otel_llmprism.instrumentation.iteration_clock import Iteration
from otel_llmprism.instrumentation.process_run import begin_run, current_run, join_run, own_run, stand_by
from otel_llmprism.instrumentation.rank_records import RankPlace, RankRecorder
from otel_llmprism.instrumentation.rank_watch import read_every
from otel_llmprism.instrumentation.switches import read_switches
from otel_llmprism.instrumentation.training_meeting import Identity, Meeting, name_node
from otel_llmprism.native.ring_records import UNKNOWN_NS, Mode

OWN_ENGINES = ("torch", "transformers", "megatron")  # their runs may follow each other in one process
MAX_WAITING = 512  # iterations that wait for the run or the device; then the oldest goes
MAX_LOOKS = 1024  # at the store, one an iteration
_MAX_WITHOUT_DEVICE = 4  # iterations that the host may be ahead of the device


class Group(NamedTuple):
    """The ranks that train together; `meeting` None: this process is alone."""

    place: RankPlace
    meeting: Meeting | None = None
    ranks_here: int | None = 1


class _Booked(NamedTuple):
    step: int
    iteration: Iteration
    is_timed: bool  # the device's time will be told
    wait_ns: int


class TrainingRun:
    """One per process; called by its training thread alone."""

    def __init__(self, find_group: Callable[[], Group] | None = None) -> None:
        self.engine_name = "torch"
        self.dropped = 0  # iterations of which nothing was written
        self.is_over = False  # nothing of this process is recorded, now or later
        self._find_group = find_group or find_training_group
        self._pairs: DevicePairs[int] = DevicePairs()
        self._device_ns: dict[int, int] = {}
        self._waiting: deque[_Booked] = deque()
        self._next_step = 0
        self._looks = 0
        self._group: Group | None = None
        self._run: EngineRun | None = None
        self._ranks: RankRecorder | None = None
        self._every = read_every(os.environ)

    def book(self, iteration: Iteration) -> None:
        """Take a finished iteration; what is known of it and of those before is written."""
        if self.is_over:
            return
        booked = _Booked(self._next_step, iteration, self._pairs.stop(), WINDOW.close())
        self._next_step += 1
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(booked)
        if self._run is None:
            self._look_for_run()
        self.write_known()
        self._begin_step(self._next_step)

    def write_known(self, *, is_final: bool = False) -> None:
        """Write the iterations whose device time is known or not to be waited for any longer."""
        if not self._waiting or self._run is None:
            return
        self._device_ns.update(self._pairs.poll())
        while self._waiting:
            booked = self._waiting[0]
            is_late = is_final or len(self._waiting) > _MAX_WITHOUT_DEVICE
            is_untold = booked.is_timed and booked.step not in self._device_ns
            if not is_late and (is_untold or WINDOW.is_untold(booked.step)):
                return
            self._waiting.popleft()
            self._write(booked, self._device_ns.pop(booked.step, UNKNOWN_NS))

    def _begin_step(self, step: int) -> None:
        if self._run is None or self._ranks is None:
            return
        self._pairs.start(step)
        if (self._every and step % self._every == 0) or self._run.mode is Mode.DEEP:
            WINDOW.open(step, self._ranks)

    def _write(self, booked: _Booked, device_ns: int) -> None:
        step, ended = booked.step, booked.iteration
        run, ranks, group = self._run, self._ranks, self._group
        if run is None or ranks is None or group is None:
            return
        is_head = group.place.rank == 0
        # Pauses of other ranks lie beside those of rank 0 and would be taken off twice.
        for pause in ended.pauses if is_head else ():
            run.steps.record_pause(*pause)
        wait_ns = WINDOW.finish(step) if booked.wait_ns == UNKNOWN_NS else booked.wait_ns
        ranks.record_phases(
            step,
            ended.number,
            forward_ns=ended.forward_ns,
            backward_ns=ended.backward_ns,
            optimizer_ns=ended.optimizer_ns,
            data_ns=ended.data_ns,
            micro_batches=ended.micro_batches,
        )
        # Last: a step is whole once its ranks are there.
        ranks.record_rank(step, ended.start_ns, ended.end_ns, device_ns, wait_ns)
        if is_head:
            run.keeper.skip_to(step)  # who joined late or lost some: whether a step is kept hangs on its id
            ticket = run.keeper.admit_step(ended.end_ns)._replace(step_id=step)
            run.steps.record_trained(ticket, ended.start_ns, ended.end_ns)

    def _look_for_run(self) -> None:
        if self._group is None and self._is_asleep():
            return
        if self._group is None and not self._begin_looking():
            self._give_up()
            return
        self._looks += 1
        group = self._group
        if group is None or group.meeting is None or self._run is not None:
            return
        folder = group.meeting.find_folder()
        if folder:
            role = f"rank {group.place.rank}"
            self._adopt(join_run(role, {**os.environ, FOLDER_VARIABLE: folder}))
        elif folder == "" or self._looks > MAX_LOOKS:
            self._give_up()

    def _is_asleep(self) -> bool:
        """Stand by while switched off; take part in a run of this training that somebody woke it into."""
        switches = read_switches(os.environ)
        if switches.is_disabled or switches.mode is not Mode.OFF:
            return False
        run = current_run()
        if run is None:
            self._waiting.clear()
            if os.environ.get("LOCAL_RANK", "0") == "0":  # one of a node begins, and the others join it
                stand_by(self.engine_name, find_version(self.engine_name))
            else:
                join_run("rank")
            return True
        if run.description is None or run.description.engine_name not in OWN_ENGINES:
            return False
        self._group = self._find_group()
        self._adopt(run)
        return True

    def _begin_looking(self) -> bool:
        former = own_run()
        engine = former.description.engine_name if former and former.description else ""
        if os.environ.get(FOLDER_VARIABLE) or (engine and engine not in OWN_ENGINES):
            return False  # a process of an engine that serves: its steps are recorded where they are made
        group = self._group = self._find_group()
        name, environment = self.engine_name, dict(os.environ)
        if group.meeting is None:
            self._adopt(begin_run(name, find_version(name), ranks=1, environment=environment))
            return True
        engine_id = environment.get(ENGINE_ID_VARIABLE, "").strip() or f"{name}-{os.urandom(6).hex()}"
        agreed = group.meeting.agree_identity(Identity(engine_id, os.urandom(16).hex()))
        environment |= {ENGINE_ID_VARIABLE: agreed.engine_id, RUN_VARIABLE: agreed.run}
        if group.meeting.is_first_here():
            ranks = group.ranks_here
            run = begin_run(name, find_version(name), ranks=ranks, environment=environment)
            group.meeting.publish_folder(environment[FOLDER_VARIABLE] if run else "")
            self._adopt(run)
        return True

    def _adopt(self, run: EngineRun | None) -> None:
        if run is None or self._group is None:
            self._give_up()
            return
        import atexit  # noqa: PLC0415  only a process that trains has an end to look after

        self._run = run
        self._ranks = run.build_rank_recorder(self._group.place)
        atexit.register(self.write_known, is_final=True)

    def _give_up(self) -> None:
        self.is_over = True
        self._waiting.clear()


def find_training_group() -> Group:
    """Ask torch.distributed, and Megatron where it is, who trains with this process."""
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() < 2:
        return Group(RankPlace(0))
    rank, world = dist.get_rank(), dist.get_world_size()
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001  there is no other way to it
    local = os.environ.get("LOCAL_WORLD_SIZE", "")
    here = int(local) if local.isdecimal() and 0 < int(local) <= world else None
    return Group(find_place(rank), Meeting(store, name_node()), here)


def find_place(rank: int) -> RankPlace:
    """Return a rank's place in each kind of parallelism; without Megatron all ranks are data-parallel."""
    state: Any = sys.modules.get("megatron.core.parallel_state")
    if state is None or not state.model_parallel_is_initialized():
        return RankPlace(rank, dp=rank)
    names = ("tensor_model_parallel", "pipeline_model_parallel", "data_parallel", "context_parallel")
    tp, pp, dp, cp, ep = (_ask_rank(state, name) for name in (*names, "expert_model_parallel"))
    return RankPlace(rank, tp, pp, dp, cp, ep)


def _ask_rank(state: Any, group: str) -> int:
    try:
        return int(getattr(state, f"get_{group}_rank")())
    except Exception:  # noqa: BLE001  not every release and every setup has each group
        return 0


def find_version(engine_name: str) -> str:
    """Return the version of a framework that is imported, empty where it does not say."""
    module = sys.modules.get("megatron.core" if engine_name == "megatron" else engine_name)
    return str(getattr(module, "__version__", ""))
