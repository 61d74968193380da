#include "otlp_record.h"

namespace llmprism::otlp {
namespace {

// Absent ids are fine here: no parent, a log without trace. Returns whether the length is wrong.
template <size_t N>
bool note_id(const Field& field, uint8_t (&id)[N]) {
  if (field.size() == N) {
    std::memcpy(id, field.at, N);
    return false;
  }
  std::memset(id, 0, N);
  return field.size() != 0;
}

template <size_t N>
bool is_zero(const uint8_t (&id)[N]) {
  uint64_t seen = 0;
  for (size_t i = 0; i < N; i += 8) seen |= load<uint64_t>(id + i);
  return seen == 0;
}

int32_t to_enum(uint64_t number) { return static_cast<int32_t>(static_cast<uint32_t>(number)); }

bool read_status(Request& request, SpanRow& row, const uint8_t* pos, const uint8_t* end, uint32_t depth) {
  while (pos < end) {
    Field field;
    if (!read_field(request, pos, end, depth, field)) return false;
    if (field.tag == 0x12) note_text(request, field, row.status_message_offset, row.status_message_length);
    if (field.tag == 0x18) row.status_code = to_enum(field.number);
    pos = field.stop;
  }
  return true;
}

bool read_sum_flags(Request& request, MetricRow& row, const uint8_t* pos, const uint8_t* end, uint32_t depth) {
  while (pos < end) {
    Field field;
    if (!read_field(request, pos, end, depth, field)) return false;
    if (field.tag == 0x10) row.temporality = to_enum(field.number);
    if (field.tag == 0x18 && row.type == 7) row.is_monotonic = field.number != 0;
    pos = field.stop;
  }
  return true;
}

bool read_points(Request& request, MetricRow& row, const uint8_t* pos, const Field& field, uint32_t depth,
                 Message message) {
  if (!has_depth(request, depth, pos)) return false;
  const uint32_t type = field.tag >> 3;
  if (row.type != type) {  // a oneof: data of another kind takes the place of what came before
    row.type = type;
    row.point_count = row.is_monotonic = 0;
    row.temporality = 0;
  }
  if (!walk_message(request, field.at, field.stop, depth - 1, message, row.point_count)) return false;
  const bool has_flags = message != kSummary && type != 5;
  return !has_flags || read_sum_flags(request, row, field.at, field.stop, depth - 1);
}

}  // namespace

bool read_record(Request& request, SpanRow& row, uint32_t depth, const KeyTable& keys, ValueCell* cells) {
  const uint8_t* pos = request.base + row.offset;
  const uint8_t* end = pos + row.length;
  uint32_t trace_state[2];  // checked, not told
  bool is_bad = false;
  while (pos < end) {
    Field field;
    if (!read_field(request, pos, end, depth, field)) return false;
    switch (field.tag) {
      case 0x4A:
        ++row.attribute_count;
        if (!read_attribute(request, pos, field, depth, keys, cells)) return false;
        break;
      case 0x0A:
        is_bad |= note_id(field, row.trace_id);
        break;
      case 0x12:
        is_bad |= note_id(field, row.span_id);
        break;
      case 0x22:
        is_bad |= note_id(field, row.parent_span_id);
        break;
      case 0x1A:
        note_text(request, field, trace_state[0], trace_state[1]);
        break;
      case 0x2A:
        note_text(request, field, row.name_offset, row.name_length);
        break;
      case 0x30:
        row.kind = to_enum(field.number);
        break;
      case 0x39:
        row.start_ns = load<uint64_t>(field.at);
        break;
      case 0x41:
        row.end_ns = load<uint64_t>(field.at);
        break;
      case 0x85:
        row.trace_flags = load<uint32_t>(field.at);
        break;
      case 0x5A:
        ++row.event_count;
        if (!walk_field(request, pos, field, depth, kEvent)) return false;
        break;
      case 0x6A:
        ++row.link_count;
        if (!walk_field(request, pos, field, depth, kLink)) return false;
        break;
      case 0x7A:
        if (!has_depth(request, depth, pos)) return false;
        if (!read_status(request, row, field.at, field.stop, depth - 1)) return false;
        break;
      default:
        break;
    }
    pos = field.stop;
  }
  if (is_bad || is_zero(row.trace_id) || is_zero(row.span_id)) row.flags |= kBadId;
  return true;
}

bool read_record(Request& request, LogRow& row, uint32_t depth, const KeyTable& keys, ValueCell* cells) {
  const uint8_t* pos = request.base + row.offset;
  const uint8_t* end = pos + row.length;
  ValueCell body{};
  bool is_bad = false;
  while (pos < end) {
    Field field;
    if (!read_field(request, pos, end, depth, field)) return false;
    switch (field.tag) {
      case 0x32:
        ++row.attribute_count;
        if (!read_attribute(request, pos, field, depth, keys, cells)) return false;
        break;
      case 0x09:
        row.time_ns = load<uint64_t>(field.at);
        break;
      case 0x59:
        row.observed_ns = load<uint64_t>(field.at);
        break;
      case 0x10:
        row.severity = to_enum(field.number);
        break;
      case 0x1A:
        note_text(request, field, row.severity_text_offset, row.severity_text_length);
        break;
      case 0x62:
        note_text(request, field, row.event_name_offset, row.event_name_length);
        break;
      case 0x2A:
        if (!has_depth(request, depth, pos)) return false;
        if (!read_any_value(request, field.at, field.stop, depth - 1, body)) return false;
        break;
      case 0x45:
        row.trace_flags = load<uint32_t>(field.at);
        break;
      case 0x4A:
        is_bad |= note_id(field, row.trace_id);
        break;
      case 0x52:
        is_bad |= note_id(field, row.span_id);
        break;
      default:
        break;
    }
    pos = field.stop;
  }
  row.body_offset = body.offset;
  row.body_length = body.length;
  row.body_type = body.type;
  if (is_bad) row.flags |= kBadId;
  return true;
}

bool read_record(Request& request, MetricRow& row, uint32_t depth, const KeyTable& keys, ValueCell* cells) {
  const uint8_t* pos = request.base + row.offset;
  const uint8_t* end = pos + row.length;
  uint32_t description[2];  // checked, not told
  while (pos < end) {
    Field field;
    if (!read_field(request, pos, end, depth, field)) return false;
    bool is_fine = true;
    switch (field.tag) {
      case 0x0A:
        note_text(request, field, row.name_offset, row.name_length);
        break;
      case 0x12:
        note_text(request, field, description[0], description[1]);
        break;
      case 0x1A:
        note_text(request, field, row.unit_offset, row.unit_length);
        break;
      case 0x2A:
      case 0x3A:
        is_fine = read_points(request, row, pos, field, depth, kGauge);
        break;
      case 0x4A:
        is_fine = read_points(request, row, pos, field, depth, kHistogram);
        break;
      case 0x52:
        is_fine = read_points(request, row, pos, field, depth, kExponentialHistogram);
        break;
      case 0x5A:
        is_fine = read_points(request, row, pos, field, depth, kSummary);
        break;
      case 0x62:
        is_fine = read_attribute(request, pos, field, depth, keys, cells);
        break;
      default:
        break;
    }
    if (!is_fine) return false;
    pos = field.stop;
  }
  return true;
}

}  // namespace llmprism::otlp
