// A checked view of one chunk: where each column of the schema lies. Internal to the ledger decoder.
#pragma once
#include <cstddef>

#include "llmprism/ledger.h"

namespace llmprism::ledger {

struct Schema {
  const ColumnSpec* columns;
  uint32_t column_count;
  uint32_t table_count;
};

struct PackedColumn {
  const uint8_t* packed;  // null: the chunk lacks this column
  ColumnHeader header;
};

struct Chunk {
  const uint8_t* end;
  uint32_t rows[kMaxTables];
  PackedColumn columns[kMaxColumns];
};

bool is_usable(const Schema& schema);
Status parse_chunk(const uint8_t* data, size_t size, const Schema& schema, Chunk* chunk);

}  // namespace llmprism::ledger
