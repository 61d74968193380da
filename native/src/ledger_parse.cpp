// Bytes of one chunk -> checked positions of its columns. Nothing is decoded here.
#include <cstring>

#include "ledger_chunk.h"

namespace llmprism::ledger {
namespace {

Status check_header(const ChunkHeader& header, size_t size) {
  if (std::memcmp(header.magic, "LLPL", 4) != 0) return kForeign;
  if (header.version > kVersion || (header.version == kVersion && header.revision > kRevision)) return kNewer;
  const bool is_current = header.version == kVersion && header.revision == kRevision;
  const bool is_before = header.version == kVersionBefore && header.revision == kRevisionBefore;
  if (!is_current && !is_before) return kTooOld;
  if (header.total_bytes > size) return kTruncated;
  if (header.total_bytes < size) return kTrailingBytes;
  return kOk;
}

// Columns come in the order of the schema's ids almost always: look from the last hit on.
uint32_t find_column(const Schema& schema, uint16_t id, uint32_t from) {
  for (uint32_t step = 0; step < schema.column_count; ++step) {
    const uint32_t index =
        from + step < schema.column_count ? from + step : from + step - schema.column_count;
    if (schema.columns[index].id == id) return index;
  }
  return schema.column_count;
}

// What is referred to is decoded before, and read back at 8 bytes a value and 4 bytes a row.
bool is_usable_reference(const Schema& schema, uint32_t index) {
  const ColumnSpec& spec = schema.columns[index];
  if (spec.reference == kNone) return true;
  if (spec.reference == kIndex) return spec.target < schema.table_count && spec.item_bytes == 4;
  if (spec.target >= index) return false;
  const ColumnSpec& target = schema.columns[spec.target];
  if (target.item_bytes != 8) return false;
  if (spec.reference == kSameRow) return target.table == spec.table;
  if (spec.reference == kLookup) return true;
  if (spec.via >= index) return false;
  const ColumnSpec& via = schema.columns[spec.via];
  return via.table == spec.table && via.reference == kIndex && via.target == target.table;
}

}  // namespace

bool is_usable(const Schema& schema) {
  if (schema.column_count == 0 || schema.column_count > kMaxColumns) return false;
  if (schema.table_count == 0 || schema.table_count > kMaxTables) return false;
  for (uint32_t index = 0; index < schema.column_count; ++index) {
    const ColumnSpec& spec = schema.columns[index];
    if (spec.table >= schema.table_count || spec.reference > kLookup) return false;
    const uint8_t width = spec.item_bytes;
    if (width != 1 && width != 2 && width != 4 && width != 8) return false;
    if (!is_usable_reference(schema, index)) return false;
  }
  return true;
}

Status parse_chunk(const uint8_t* data, size_t size, const Schema& schema, Chunk* chunk) {
  ChunkHeader header;
  if (size < sizeof header) return kTruncated;
  if (size > kMaxChunkBytes) return kTooManyRows;
  std::memcpy(&header, data, sizeof header);
  const Status status = check_header(header, size);
  if (status != kOk) return status;

  // A chunk of the format before may know fewer tables; one with more is newer and was refused.
  if (header.table_count > schema.table_count) return kBadColumn;
  const uint8_t* at = data + sizeof header;
  const uint8_t* const end = data + size;
  if (static_cast<size_t>(end - at) < header.table_count * sizeof(uint32_t)) return kTruncated;
  std::memset(chunk->rows, 0, sizeof chunk->rows);
  std::memcpy(chunk->rows, at, header.table_count * sizeof(uint32_t));
  at += header.table_count * sizeof(uint32_t);
  uint64_t total_rows = 0;
  for (uint32_t table = 0; table < schema.table_count; ++table) total_rows += chunk->rows[table];
  if (total_rows > kFreeRows + size) return kTooManyRows;

  for (uint32_t index = 0; index < schema.column_count; ++index) chunk->columns[index].packed = nullptr;
  uint32_t next = 0;
  for (uint32_t seen = 0; seen < header.column_count; ++seen) {
    ColumnHeader column;
    if (static_cast<size_t>(end - at) < sizeof column) return kTruncated;
    std::memcpy(&column, at, sizeof column);
    at += sizeof column;
    const uint32_t index = find_column(schema, column.id, next);
    if (index == schema.column_count || column.width > 8 || (column.mode & ~kAllModes) != 0)
      return kBadColumn;
    const uint64_t bytes = uint64_t{chunk->rows[schema.columns[index].table]} * column.width;
    if (static_cast<uint64_t>(end - at) < bytes) return kTruncated;
    if (chunk->columns[index].packed != nullptr) return kBadColumn;
    chunk->columns[index] = {at, column};
    at += bytes;
    next = index + 1;
  }
  if (at != end) return kTrailingBytes;
  chunk->end = end;
  return kOk;
}

}  // namespace llmprism::ledger
