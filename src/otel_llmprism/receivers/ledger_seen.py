# Which records of a ledger were read already: repeats are dropped, gaps counted. Bounded per source.
WINDOW = 1024  # how far records may come out of order


class SeenNumbers:
    """The numbers of one (engine, run, node, event name); they grow by one and may be first seen anywhere."""

    def __init__(self, first: int) -> None:
        self.missing_count = 0  # given up: more than WINDOW newer ones came since
        self._first = first
        self._early: set[int] = set()  # below the first one seen; there nothing counts as missing
        self._settled = first - 1
        self._ahead: set[int] = set()

    def add(self, number: int) -> bool:
        """Take in `number`; tell whether it is new."""
        if number < self._first:
            is_new = number >= self._first - WINDOW and number not in self._early
            self._early.add(number)
            return is_new
        if number <= self._settled or number in self._ahead:
            return False
        self._ahead.add(number)
        if number - self._settled > WINDOW:
            self._give_up(number - WINDOW)
        while self._settled + 1 in self._ahead:
            self._settled += 1
            self._ahead.remove(self._settled)
        return True

    def _give_up(self, settled: int) -> None:
        came = {number for number in self._ahead if number <= settled}
        self.missing_count += settled - self._settled - len(came)
        self._ahead -= came
        self._settled = settled
