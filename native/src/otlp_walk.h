// What the scanner only has to check: every message below a record, by table.
#pragma once
#include "otlp_wire.h"

namespace llmprism::otlp {

enum Message : uint8_t {
  kKeyValue,
  kAnyValue,
  kArrayValue,
  kKeyValueList,
  kEntityRef,
  kEvent,
  kLink,
  kGauge,
  kHistogram,
  kExponentialHistogram,
  kSummary,
  kNumberPoint,
  kHistogramPoint,
  kExponentialPoint,
  kBuckets,
  kSummaryPoint,
  kQuantile,
  kExemplar,
  kMessageCount,
};

// Checks one message and all below it; firsts counts its fields with tag 0x0A.
bool walk_message(Request& request, const uint8_t* pos, const uint8_t* end, uint32_t depth, Message message,
                  uint32_t& firsts);

inline bool walk_field(Request& request, const uint8_t* field, const Field& value, uint32_t depth, Message message) {
  if (request.is_checked) return true;
  uint32_t firsts = 0;
  return has_depth(request, depth, field) && walk_message(request, value.at, value.stop, depth - 1, message, firsts);
}

}  // namespace llmprism::otlp
