// Checked columns -> numbers, appended to the columns that all chunks of one call share.
#include <cstring>

#include "ledger_chunk.h"

namespace llmprism::ledger {
namespace {

// 4 KiB of numbers at a time stay in the first-level cache between the passes below.
constexpr size_t kBlock = 512;
constexpr uint64_t kUnknown = ~uint64_t{0};

struct Output {
  uint8_t* out;
  const uint64_t* starts;       // of each column in `out`
  const uint64_t* rows_before;  // of each table, from the chunks before
};

uint64_t load(const uint8_t* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <int kWidth>
void unpack(const uint8_t* packed, const uint8_t* end, size_t count, uint64_t* values) {
  constexpr uint64_t mask = kWidth == 8 ? kUnknown : (uint64_t{1} << (8 * kWidth % 64)) - 1;
  size_t index = 0;
  // Eight readable bytes are certain for all but the last few numbers of a chunk.
  const size_t readable = static_cast<size_t>(end - packed);
  const size_t wide = readable < 8 ? 0 : (readable - 8) / kWidth + 1;
  for (const size_t stop = wide < count ? wide : count; index < stop; ++index) {
    values[index] = load(packed + index * kWidth) & mask;
  }
  for (; index < count; ++index) {
    uint64_t value = 0;
    std::memcpy(&value, packed + index * kWidth, kWidth);
    values[index] = value;
  }
}

void unpack_any(const uint8_t* packed, const uint8_t* end, uint8_t width, size_t count, uint64_t* values) {
  switch (width) {
    case 1:
      return unpack<1>(packed, end, count, values);
    case 2:
      return unpack<2>(packed, end, count, values);
    case 3:
      return unpack<3>(packed, end, count, values);
    case 4:
      return unpack<4>(packed, end, count, values);
    case 5:
      return unpack<5>(packed, end, count, values);
    case 6:
      return unpack<6>(packed, end, count, values);
    case 7:
      return unpack<7>(packed, end, count, values);
    case 8:
      return unpack<8>(packed, end, count, values);
    default:
      std::memset(values, 0, count * sizeof *values);
  }
}

template <typename Item>
void store(const uint64_t* values, size_t count, uint8_t* to) {
  for (size_t index = 0; index < count; ++index) {
    const Item item = static_cast<Item>(values[index]);
    std::memcpy(to + index * sizeof item, &item, sizeof item);
  }
}

void store_any(const uint64_t* values, uint8_t item_bytes, size_t count, uint8_t* to) {
  switch (item_bytes) {
    case 1:
      return store<uint8_t>(values, count, to);
    case 2:
      return store<uint16_t>(values, count, to);
    case 4:
      return store<uint32_t>(values, count, to);
    default:
      std::memcpy(to, values, count * sizeof *values);
  }
}

class ColumnDecoder {
 public:
  ColumnDecoder(const Schema& schema, const Chunk& chunk, const Output& output)
      : schema_(schema), chunk_(chunk), output_(output) {}

  // False when a number names a row that its table does not have.
  bool decode(uint32_t index) const {
    const ColumnSpec& spec = schema_.columns[index];
    const PackedColumn& column = chunk_.columns[index];
    const size_t rows = chunk_.rows[spec.table];
    if (rows == 0) return true;
    if (column.packed == nullptr) return fill(index, spec.fallback, rows);
    if (is_stored_as_is(spec, column.header)) {
      std::memcpy(item(index, 0), column.packed, rows * spec.item_bytes);
      return true;
    }
    return decode_blocks(index, column, rows);
  }

 private:
  bool decode_blocks(uint32_t index, const PackedColumn& column, size_t rows) const {
    const ColumnSpec& spec = schema_.columns[index];
    const uint8_t width = column.header.width;
    uint8_t* to = item(index, 0);
    uint64_t values[kBlock];
    uint64_t sum = column.header.first;
    for (size_t done = 0; done < rows; done += kBlock) {
      const size_t count = rows - done < kBlock ? rows - done : kBlock;
      unpack_any(column.packed + done * width, chunk_.end, width, count, values);
      add_base(column.header, count, values, &sum);
      if (!resolve(spec, column.header, done, count, values)) return false;
      store_any(values, spec.item_bytes, count, to);
      to += count * spec.item_bytes;
    }
    return true;
  }

  static bool is_stored_as_is(const ColumnSpec& spec, const ColumnHeader& header) {
    return spec.reference == kNone && !spec.is_optional && header.mode == 0 && header.base == 0 &&
           header.width == spec.item_bytes;
  }

  // A column that names rows cannot be made up.
  bool fill(uint32_t index, uint64_t value, size_t rows) const {
    const ColumnSpec& spec = schema_.columns[index];
    if (spec.reference == kIndex || spec.reference == kLookup) return false;
    for (size_t row = 0; row < rows; ++row) store_any(&value, spec.item_bytes, 1, item(index, row));
    return true;
  }

  uint8_t* item(uint32_t index, size_t row) const {
    const ColumnSpec& spec = schema_.columns[index];
    return output_.out + output_.starts[index] + (output_.rows_before[spec.table] + row) * spec.item_bytes;
  }

  static void add_base(const ColumnHeader& header, size_t count, uint64_t* values, uint64_t* sum) {
    if ((header.mode & kDelta) == 0) {
      for (size_t i = 0; i < count; ++i) values[i] += header.base;
      return;
    }
    uint64_t total = *sum;
    for (size_t i = 0; i < count; ++i) {
      total += header.base + values[i];
      values[i] = total;
    }
    *sum = total;
  }

  bool resolve(const ColumnSpec& spec, const ColumnHeader& header, size_t done, size_t count,
               uint64_t* values) const {
    if (spec.reference == kIndex) return to_global_rows(spec, count, values);
    if (spec.reference == kLookup) return look_up(spec, count, values);
    const bool is_relative = (header.mode & kRelative) != 0 && spec.reference != kNone;
    if (!is_relative) {
      if (spec.is_optional) {
        for (size_t i = 0; i < count; ++i) values[i] -= 1;  // 0 becomes kUnknown
      }
      return true;
    }
    uint64_t origins[kBlock];
    find_origins(spec, done, count, origins);
    if (spec.is_optional) {
      for (size_t i = 0; i < count; ++i) values[i] = values[i] == 0 ? kUnknown : values[i] - 1 + origins[i];
    } else {
      for (size_t i = 0; i < count; ++i) values[i] += origins[i];
    }
    return true;
  }

  void find_origins(const ColumnSpec& spec, size_t done, size_t count, uint64_t* origins) const {
    if (spec.reference == kSameRow) {
      std::memcpy(origins, item(spec.target, done), count * sizeof *origins);
      return;
    }
    // `via` was checked when it was decoded, so the rows exist.
    const uint8_t* const rows = item(spec.via, done);
    const uint8_t* const targets = output_.out + output_.starts[spec.target];
    for (size_t i = 0; i < count; ++i) {
      uint32_t row;
      std::memcpy(&row, rows + i * sizeof row, sizeof row);
      origins[i] = load(targets + size_t{row} * sizeof(uint64_t));
    }
  }

  bool to_global_rows(const ColumnSpec& spec, size_t count, uint64_t* values) const {
    const uint64_t rows = chunk_.rows[spec.target];
    const uint64_t before = output_.rows_before[spec.target];
    bool is_good = true;
    for (size_t i = 0; i < count; ++i) {
      is_good &= values[i] < rows;
      values[i] += before;
    }
    return is_good;
  }

  bool look_up(const ColumnSpec& spec, size_t count, uint64_t* values) const {
    const uint64_t rows = chunk_.rows[schema_.columns[spec.target].table];
    const uint8_t* const first = item(spec.target, 0);
    for (size_t i = 0; i < count; ++i) {
      if (values[i] >= rows) return false;
      values[i] = load(first + values[i] * sizeof(uint64_t));
    }
    return true;
  }

  const Schema& schema_;
  const Chunk& chunk_;
  const Output& output_;
};

bool decode_chunk(const Schema& schema, const Chunk& chunk, const Output& output) {
  const ColumnDecoder decoder(schema, chunk, output);
  for (uint32_t index = 0; index < schema.column_count; ++index) {
    if (!decoder.decode(index)) return false;
  }
  return true;
}

bool is_ordered(const uint64_t* offsets, uint32_t count) {
  for (uint32_t index = 0; index < count; ++index) {
    if (offsets[index + 1] < offsets[index]) return false;
  }
  return true;
}

}  // namespace
}  // namespace llmprism::ledger

using namespace llmprism::ledger;

int32_t llmprism_ledger_measure(const uint8_t* data, const uint64_t* offsets, uint32_t count,
                                const void* schema, uint32_t column_count, uint32_t table_count,
                                uint32_t* rows, uint8_t* status) {
  const Schema known{static_cast<const ColumnSpec*>(schema), column_count, table_count};
  if (!is_usable(known) || !is_ordered(offsets, count)) return -1;
  Chunk chunk;
  for (uint32_t index = 0; index < count; ++index) {
    const uint64_t start = offsets[index];
    status[index] = parse_chunk(data + start, offsets[index + 1] - start, known, &chunk);
    uint32_t* const own_rows = rows + size_t{index} * table_count;
    if (status[index] == kOk) {
      std::memcpy(own_rows, chunk.rows, table_count * sizeof *rows);
    } else {
      std::memset(own_rows, 0, table_count * sizeof *rows);
    }
  }
  return 0;
}

int32_t llmprism_ledger_decode(const uint8_t* data, const uint64_t* offsets, uint32_t count,
                               const void* schema, uint32_t column_count, uint32_t table_count,
                               const uint32_t* rows, uint8_t* status, const uint64_t* column_starts,
                               uint8_t* out) {
  const Schema known{static_cast<const ColumnSpec*>(schema), column_count, table_count};
  if (!is_usable(known) || !is_ordered(offsets, count)) return -1;
  uint64_t rows_before[kMaxTables] = {};
  Chunk chunk;
  for (uint32_t index = 0; index < count; ++index) {
    if (status[index] != kOk) continue;
    const uint64_t start = offsets[index];
    if (parse_chunk(data + start, offsets[index + 1] - start, known, &chunk) != kOk) return -1;
    const uint32_t* const own_rows = rows + size_t{index} * table_count;
    if (std::memcmp(own_rows, chunk.rows, table_count * sizeof *rows) != 0) return -1;
    if (!decode_chunk(known, chunk, Output{out, column_starts, rows_before})) status[index] = kBadIndex;
    for (uint32_t table = 0; table < table_count; ++table) rows_before[table] += own_rows[table];
  }
  return 0;
}
