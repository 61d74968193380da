# What a question can be answered with instead of an answer: a status, a sentence, and the mend.


class QueryError(Exception):
    """Answered as JSON; `hint` says how to ask better."""

    def __init__(self, status: int, message: str, hint: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint


class BadParameterError(QueryError):
    def __init__(self, name: str, why: str, hint: str) -> None:
        super().__init__(400, f"parameter {name!r}: {why}", hint)
