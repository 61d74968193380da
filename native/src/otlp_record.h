// Span, LogRecord and Metric as rows. False means refused; the row's flags tell a bad id.
#pragma once
#include "otlp_keys.h"

namespace llmprism::otlp {

// row.offset and row.length say where the record is; cells has one cell a key of keys.
bool read_record(Request& request, SpanRow& row, uint32_t depth, const KeyTable& keys, ValueCell* cells);
bool read_record(Request& request, LogRow& row, uint32_t depth, const KeyTable& keys, ValueCell* cells);
bool read_record(Request& request, MetricRow& row, uint32_t depth, const KeyTable& keys, ValueCell* cells);

inline bool read_attribute(Request& request, const uint8_t* pos, const Field& field, uint32_t depth,
                           const KeyTable& keys, ValueCell* cells) {
  if (request.is_checked && keys.may_skip(field)) return true;
  KeyValue pair;
  if (!read_plain_pair(request, field, pair)) {
    if (!has_depth(request, depth, pos)) return false;
    if (!read_key_value(request, field.at, field.stop, depth - 1, pair)) return false;
  }
  keys.note(cells, pair);
  return true;
}

inline void note_text(Request& request, const Field& field, uint32_t& offset, uint32_t& length) {
  check_utf8(request, field);
  offset = request.offset_of(field.at);
  length = field.size();
}

}  // namespace llmprism::otlp
