# The codes that records of a ring carry, as small integers: what comes in and goes out as one byte or two.
# ring_records.py packs them; their order is part of the format, so a new code goes to the end.
from enum import IntEnum


class Kind(IntEnum):
    STEP_SCHEDULED = 1
    STEP_MEMBERS = 2
    STEP_OUTPUT = 3
    STEP_RANK = 4
    REQUEST_ARRIVED = 5
    REQUEST_TEXT = 6
    REQUEST_EVENT = 7
    REQUEST_ENDED = 8
    PAUSE = 9
    HOOK_OFF = 10
    COLLECTIVE = 11
    STEP_PHASES = 12


class StepKind(IntEnum):  # position in semconv.step.KINDS, plus one
    UNKNOWN = 0
    PREFILL = 1
    DECODE = 2
    MIXED = 3
    TRAIN = 4
    IDLE = 5
    DUMMY = 6


class Kept(IntEnum):  # position in semconv.step.KEPT, plus one
    NO = 0
    RANDOM = 1
    ANOMALOUS = 2
    FINDING = 3
    DEEP = 4
    ALL = 5


class GraphMode(IntEnum):
    UNKNOWN = 0
    NONE = 1
    PIECEWISE = 2
    FULL = 3


class Mode(IntEnum):
    OFF = 0
    SENTINEL = 1
    DEEP = 2


class Member(IntEnum):
    """What one entry of STEP_MEMBERS says about a slot of the running set."""

    TOKENS = 0  # this step it gets `tokens`, not the one token that is predicted
    JOINED = 1  # it is in the running set from this step on and gets `tokens`
    LEFT = 2  # it is out of the running set from this step on
    RESET = 3  # the running set is empty; those that are in it follow as JOINED


class RequestEvent(IntEnum):  # what `tokens` says of each stands beside it
    QUEUED = 1
    SCHEDULED = 2  # for the first time; prompt tokens that a cache had
    FIRST_TOKEN = 3
    PREEMPTED = 4  # computed tokens that it lost
    RESPONDED = 5  # its end as the front end told the user; a Finish code
    RESUMED = 6  # after a preemption; computed tokens that a cache still had


class Finish(IntEnum):
    UNKNOWN = 0
    STOP = 1
    LENGTH = 2
    ABORT = 3
    ERROR = 4
    TOOL_CALLS = 5
    CONTENT_FILTER = 6


class CollectiveOp(IntEnum):  # position in semconv.collective.OPS, plus one
    UNKNOWN = 0
    ALL_REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    ALL_TO_ALL = 4
    BROADCAST = 5
    REDUCE = 6
    GATHER = 7
    SCATTER = 8
    SEND = 9
    RECV = 10
    BARRIER = 11


class Pause(IntEnum):
    UNKNOWN = 0
    SLEEP = 1
    WEIGHTS = 2
    EVALUATION = 3
    CHECKPOINT = 4


class HookOff(IntEnum):
    UNKNOWN = 0
    BUDGET = 1  # its p99 exceeded its budget
    FAILED = 2
    ABSENT = 3  # the framework has no such place


class Text(IntEnum):
    REQUEST_ID = 1  # what did not fit inline
    EXTERNAL_ID = 2  # first TEXT_BYTES
    EXTERNAL_ID_REST = 3
