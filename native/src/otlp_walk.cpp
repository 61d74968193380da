#include "otlp_walk.h"

#include <initializer_list>

namespace llmprism::otlp {
namespace {

enum Action : uint8_t { kStepOver = 0, kUtf8, kTraceId, kSpanId, kPacked64, kPackedVarint, kInto };

// Every tag that matters below a record is below 128: one byte a tag, indexed directly.
struct Schema {
  uint8_t actions[kMessageCount][128] = {};

  constexpr void add(Message message, uint32_t tag, Action action) { actions[message][tag] = action; }
  constexpr void add(Message message, uint32_t tag, Message below) {
    actions[message][tag] = static_cast<uint8_t>(uint32_t{kInto} + below);
  }
};

constexpr Schema build_schema() {
  Schema s;
  s.add(kKeyValue, 0x0A, kUtf8);
  s.add(kKeyValue, 0x12, kAnyValue);
  s.add(kAnyValue, 0x0A, kUtf8);
  s.add(kAnyValue, 0x2A, kArrayValue);
  s.add(kAnyValue, 0x32, kKeyValueList);
  s.add(kArrayValue, 0x0A, kAnyValue);
  s.add(kKeyValueList, 0x0A, kKeyValue);
  for (uint32_t tag : {0x0AU, 0x12U, 0x1AU, 0x22U}) s.add(kEntityRef, tag, kUtf8);
  s.add(kEvent, 0x12, kUtf8);
  s.add(kEvent, 0x1A, kKeyValue);
  s.add(kLink, 0x0A, kTraceId);
  s.add(kLink, 0x12, kSpanId);
  s.add(kLink, 0x1A, kUtf8);
  s.add(kLink, 0x22, kKeyValue);
  s.add(kGauge, 0x0A, kNumberPoint);
  s.add(kHistogram, 0x0A, kHistogramPoint);
  s.add(kExponentialHistogram, 0x0A, kExponentialPoint);
  s.add(kSummary, 0x0A, kSummaryPoint);
  s.add(kNumberPoint, 0x2A, kExemplar);
  s.add(kNumberPoint, 0x3A, kKeyValue);
  s.add(kHistogramPoint, 0x32, kPacked64);
  s.add(kHistogramPoint, 0x3A, kPacked64);
  s.add(kHistogramPoint, 0x42, kExemplar);
  s.add(kHistogramPoint, 0x4A, kKeyValue);
  s.add(kExponentialPoint, 0x0A, kKeyValue);
  s.add(kExponentialPoint, 0x42, kBuckets);
  s.add(kExponentialPoint, 0x4A, kBuckets);
  s.add(kExponentialPoint, 0x5A, kExemplar);
  s.add(kBuckets, 0x12, kPackedVarint);
  s.add(kSummaryPoint, 0x32, kQuantile);
  s.add(kSummaryPoint, 0x3A, kKeyValue);
  s.add(kExemplar, 0x22, kSpanId);
  s.add(kExemplar, 0x2A, kTraceId);
  s.add(kExemplar, 0x3A, kKeyValue);
  return s;
}

constexpr Schema kSchema = build_schema();

bool check_packed_varints(Request& request, const uint8_t* field, const Field& value) {
  uint64_t number;
  for (const uint8_t* pos = value.at; pos < value.stop;) {
    if (!read_varint(request, pos, value.stop, field, 10, number)) return false;
  }
  return true;
}

bool check_value(Request& request, const uint8_t* field, const Field& value, uint32_t depth, uint8_t action) {
  const uint32_t size = value.size();
  switch (action) {
    case kUtf8:
      check_utf8(request, value);
      return true;
    case kTraceId:
      request.bad_ids += size != 0 && size != 16;
      return true;
    case kSpanId:
      request.bad_ids += size != 0 && size != 8;
      return true;
    case kPacked64:
      return size % 8 == 0 || request.refuse(field, kBadPacked);
    case kPackedVarint:
      return check_packed_varints(request, field, value);
    default:
      return walk_field(request, field, value, depth, static_cast<Message>(action - kInto));
  }
}

}  // namespace

bool walk_message(Request& request, const uint8_t* pos, const uint8_t* end, uint32_t depth, Message message,
                  uint32_t& firsts) {
  const uint8_t* actions = kSchema.actions[message];
  while (pos < end) {
    Field value;
    if (!read_field(request, pos, end, depth, value)) return false;
    firsts += value.tag == 0x0A;
    const uint8_t action = value.tag < 128 ? actions[value.tag] : uint8_t{kStepOver};
    if (action == kStepOver || request.is_checked) {
      pos = value.stop;
      continue;
    }
    if (!check_value(request, pos, value, depth, action)) return false;
    pos = value.stop;
  }
  return true;
}

}  // namespace llmprism::otlp
