# What time it is in the data of an engine: our clock less what its ledger lags behind, so that a backlog, a
# recording or a node whose clock is wrong is judged in its own time. Pure.
_NORMAL_NS = 5_000_000_000  # of lag: what shipping takes, and clocks differ
HEARD_NS = 10_000_000_000


class DataClock:
    def __init__(self) -> None:
        self.arrived_ns = 0
        self.lag_ns = 0

    def note(self, arrived_ns: int, data_ns: int) -> None:
        """Take in that data of `data_ns` (real time of its node) arrived then."""
        lag_ns = arrived_ns - data_ns
        self.arrived_ns = arrived_ns
        self.lag_ns = lag_ns if abs(lag_ns) > _NORMAL_NS else 0

    def read(self, now_ns: int) -> int:
        """Return the data's real time at `now_ns` of our clock."""
        return now_ns - self.lag_ns


def choose_lag(clocks: "list[DataClock]", now_ns: int, before_ns: int) -> int:
    """Return the smallest lag of those heard lately, else the one before: what a fleet is judged by."""
    heard = [clock.lag_ns for clock in clocks if now_ns - clock.arrived_ns <= HEARD_NS]
    return min(heard, key=abs, default=before_ns)
