# What the store holds in all: operations, calls between services, llmprism's events, sizes. Any thread;
# each question sees one committed state while the writer goes on.
from otel_llmprism.exporters.store.connection_pool import QUESTION_S, ConnectionPool
from otel_llmprism.exporters.store.decode import decode_log_attributes
from otel_llmprism.exporters.store.stored import StoredEvent, StoreSize

MAX_NAMES = 10_000


class StoreCatalog:
    """Raises QuestionTooLongError or StoreUnreadableError."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    def list_operations(self, service: str | None = None) -> list[tuple[str, str, int]]:
        """Return service, span name and span kind of every operation (of one service, or all)."""
        with self._pool.connect(QUESTION_S) as connection:
            return connection.execute(
                "SELECT service.text, name.text, operation.kind FROM operation "
                "JOIN text AS service ON service.id = operation.service "
                "JOIN text AS name ON name.id = operation.name "
                "WHERE :service IS NULL OR service.text = :service ORDER BY 1, 2, 3 LIMIT :limit",
                {"service": service, "limit": MAX_NAMES},
            ).fetchall()

    def count_calls(self, start_ns: int, end_ns: int) -> list[tuple[str, str, int]]:
        """Return parent service, child service and number of calls between different services."""
        with self._pool.connect(QUESTION_S) as connection:
            return connection.execute(
                "SELECT caller.text, called.text, count(*) "
                "FROM (SELECT DISTINCT service FROM operation) AS each "
                "JOIN span AS child ON child.service = each.service AND child.start_ns BETWEEN ? AND ? "
                "JOIN span AS parent "
                "ON parent.trace_id = child.trace_id AND parent.span_id = child.parent_id "
                "JOIN text AS caller ON caller.id = parent.service "
                "JOIN text AS called ON called.id = child.service "
                "WHERE parent.service <> child.service GROUP BY 1, 2 ORDER BY 1, 2",
                (start_ns, end_ns),
            ).fetchall()

    def list_events(self, limit: int) -> list[StoredEvent]:
        """Return llmprism's own log events, newest first."""
        with self._pool.connect(QUESTION_S) as connection:
            rows = connection.execute(
                "SELECT time_ns, name, service, trace_id, span_id, data FROM event "
                "ORDER BY time_ns DESC LIMIT ?",
                (limit,),
            ).fetchall()
        return [
            StoredEvent(time_ns, name, service, trace_id, span_id, decode_log_attributes(data))
            for time_ns, name, service, trace_id, span_id, data in rows
        ]

    def measure_size(self) -> StoreSize:
        """Return how much is stored."""
        with self._pool.connect(QUESTION_S) as connection:
            row = connection.execute(
                "SELECT coalesce(sum(spans), 0), count(*), coalesce(sum(raw_bytes), 0), min(stored_ns) "
                "FROM block"
            ).fetchone()
        return StoreSize(*row)
