// libFuzzer target for the ledger decoder: any bytes, cut into up to three chunks that share their columns.
// The schema is native/ledger_schema.py's, kept as a file beside this one; a test holds the two together.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "llmprism/ledger.h"

namespace {

using llmprism::ledger::ColumnSpec;

std::vector<ColumnSpec> load_schema() {
  std::FILE* const file = std::fopen("native/fuzz/ledger_schema.bin", "rb");
  if (file == nullptr) std::abort();
  std::vector<ColumnSpec> columns(llmprism::ledger::kMaxColumns);
  columns.resize(std::fread(columns.data(), sizeof(ColumnSpec), columns.size(), file));
  std::fclose(file);
  return columns;
}

uint32_t count_tables(const std::vector<ColumnSpec>& columns) {
  uint32_t tables = 0;
  for (const ColumnSpec& column : columns) {
    if (column.table >= tables) tables = column.table + 1u;
  }
  return tables;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<ColumnSpec> columns = load_schema();
  static const uint32_t tables = count_tables(columns);
  // Chunks begin where the magic stands.
  std::vector<uint64_t> offsets{0};
  for (size_t at = 1; at + 4 <= size && offsets.size() < 3; ++at) {
    if (std::memcmp(data + at, "LLPL", 4) == 0) offsets.push_back(at);
  }
  offsets.push_back(size);
  const auto count = static_cast<uint32_t>(offsets.size() - 1);
  const auto column_count = static_cast<uint32_t>(columns.size());
  std::vector<uint32_t> rows(size_t{count} * tables);
  std::vector<uint8_t> status(count);
  if (llmprism_ledger_measure(data, offsets.data(), count, columns.data(), column_count, tables, rows.data(),
                              status.data()) != 0) {
    std::abort();
  }
  std::vector<uint64_t> starts;
  uint64_t total = 0;
  for (const ColumnSpec& column : columns) {
    starts.push_back(total);
    uint64_t column_rows = 0;
    for (uint32_t chunk = 0; chunk < count; ++chunk)
      column_rows += rows[size_t{chunk} * tables + column.table];
    total += (column_rows * column.item_bytes + 7) & ~uint64_t{7};
  }
  // Exactly as large as promised, so that ASan sees the first byte beyond.
  std::vector<uint8_t> out(total);
  if (llmprism_ledger_decode(data, offsets.data(), count, columns.data(), column_count, tables, rows.data(),
                             status.data(), starts.data(), out.data()) != 0) {
    std::abort();
  }
  return 0;
}
