# Cuts a request that is too large into several that each stand alone. Comes in: payload and scan. Goes
# out: where to cut, in records. Knows nothing of who sends the pieces.
from typing import Final

from otel_llmprism.native import otlp_layout as layout
from otel_llmprism.native.otlp_layout import Scan

_RESOURCE: Final = layout.build_struct(layout.RESOURCE_DTYPE)
_SCOPE: Final = layout.build_struct(layout.SCOPE_DTYPE)


def plan_cuts(scan: Scan, max_bytes: int) -> list[tuple[int, int]]:
    """Return ranges of records whose requests keep within `max_bytes`; a larger record goes alone.

    Sizes are counted from above: lengths only shrink when a range is cut out. Linear in the records.
    """
    records = _read_spans(scan)
    resource_costs = [row[1] + row[2] - row[0] for row in _RESOURCE.iter_unpack(scan.resources)]
    scope_costs = []
    for row in _SCOPE.iter_unpack(scan.scopes):
        scope_costs.append(row[1] + row[2] - row[0])
        resource_costs[row[3]] -= scope_costs[-1]
    for size, _, scope in records:
        scope_costs[scope] -= size
    # The first range also keeps what holds no record: unknown fields, empty envelopes.
    total = scan.payload_size - sum(resource_costs) - sum(scope_costs) - sum(row[0] for row in records)
    total += _count_empty(scan, resource_costs, scope_costs)
    ranges: list[tuple[int, int]] = []
    first, last_resource, last_scope = 0, -1, -1
    for index, (size, resource, scope) in enumerate(records):
        grown = total + size
        grown += resource_costs[resource] if resource != last_resource else 0
        grown += scope_costs[scope] if scope != last_scope else 0
        if grown > max_bytes and index > first:
            ranges.append((first, index))
            first = index
            grown = size + resource_costs[resource] + scope_costs[scope]
        total, last_resource, last_scope = grown, resource, scope
    return [*ranges, (first, len(records))]


def _read_spans(scan: Scan) -> list[tuple[int, int, int]]:
    """Size, resource and scope of each record."""
    columns = layout.RECORD_DTYPES[scan.signal]
    at = [column[0] for column in columns].index("start")
    rows = layout.build_struct(columns).iter_unpack(scan.records)
    return [(row[at + 1] + row[at + 2] - row[at], row[at + 3], row[at + 4]) for row in rows]


def _count_empty(scan: Scan, resource_costs: list[int], scope_costs: list[int]) -> int:
    scopes = zip(_SCOPE.iter_unpack(scan.scopes), scope_costs, strict=True)
    resources = zip(_RESOURCE.iter_unpack(scan.resources), resource_costs, strict=True)
    return sum(cost for row, cost in scopes if row[14] == 0) + sum(
        cost for row, cost in resources if row[11] == 0
    )
