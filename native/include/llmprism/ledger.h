// Ledger chunks -> columns. Schema-less: Python passes the columns (native/ledger_schema.py), so that the
// format is written down once. Input bytes are hostile: everything is checked before anything is written.
#pragma once
#include <cstdint>

#include "llmprism/abi.h"

namespace llmprism::ledger {

// One chunk, little-endian: this header, `table_count` row counts (u32), then `column_count` columns.
struct ChunkHeader {
  char magic[4];  // "LLPL"
  uint8_t version;
  uint8_t revision;
  uint16_t table_count;
  uint16_t column_count;
  uint16_t reserved;
  uint32_t total_bytes;
  uint64_t first_step;
  uint64_t last_step;
  uint64_t anchor_monotonic_ns;
  uint64_t anchor_realtime_ns;
};
static_assert(sizeof(ChunkHeader) == 48);

// One column, then rows x `width` bytes. value[i] = base + packed[i], summed up from `first` if kDelta.
struct ColumnHeader {
  uint16_t id;
  uint8_t mode;
  uint8_t width;  // 0..8
  uint32_t reserved;
  uint64_t base;
  uint64_t first;
};
static_assert(sizeof(ColumnHeader) == 24);

enum Mode : uint8_t { kDelta = 1, kRelative = 2, kAllModes = 3 };
enum Reference : uint8_t { kNone, kSameRow, kViaRow, kIndex, kLookup };

struct ColumnSpec {
  uint16_t id;
  uint8_t table;
  uint8_t item_bytes;  // 1, 2, 4 or 8: the width of the decoded column
  uint8_t reference;
  uint8_t is_optional;
  uint16_t target;  // position in the schema; for kIndex a table
  uint16_t via;
  uint16_t reserved;
  uint32_t reserved2;
  uint64_t fallback;  // where a chunk lacks the column
};
static_assert(sizeof(ColumnSpec) == 24);

// Python knows these numbers too (native/ledger_layout.py).
enum Status : uint8_t {
  kOk = 0,
  kTruncated = 1,
  kForeign = 2,
  kNewer = 3,
  kTooOld = 4,
  kTooManyRows = 5,
  kBadColumn = 6,
  kTrailingBytes = 7,
  kBadIndex = 8,
};

inline constexpr uint8_t kVersion = 1;
inline constexpr uint8_t kRevision = 0;
inline constexpr uint8_t kVersionBefore = 0;
inline constexpr uint8_t kRevisionBefore = 1;
inline constexpr uint32_t kMaxTables = 32;
inline constexpr uint32_t kMaxColumns = 256;
inline constexpr uint64_t kMaxChunkBytes = 1 << 20;
// The bound of the harm: rows of all tables together, beyond this many, take a byte each on the wire.
inline constexpr uint64_t kFreeRows = 1024;

}  // namespace llmprism::ledger

// Checks `count` chunks that lie at offsets[i]..offsets[i+1] of `data` and writes rows[i * tables + t] and
// status[i]. Returns 0, or -1 when the arguments make no sense.
LLMPRISM_API int32_t llmprism_ledger_measure(const uint8_t* data, const uint64_t* offsets, uint32_t count,
                                             const void* schema, uint32_t column_count, uint32_t table_count,
                                             uint32_t* rows, uint8_t* status);

// Decodes the chunks whose status is kOk, one after the other, into out + column_starts[c]; a chunk that
// names a row it does not have becomes kBadIndex (its rows are then to be thrown away).
LLMPRISM_API int32_t llmprism_ledger_decode(const uint8_t* data, const uint64_t* offsets, uint32_t count,
                                            const void* schema, uint32_t column_count, uint32_t table_count,
                                            const uint32_t* rows, uint8_t* status,
                                            const uint64_t* column_starts, uint8_t* out);
