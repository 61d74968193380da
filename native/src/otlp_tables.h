// The rows of a scan as the editor sees them: where each resource, scope and record is. Every place is
// checked against the payload before it is used, for the rows may be of another one.
#pragma once
#include "otlp_wire.h"

namespace llmprism::otlp {

// Start of the tag, start of the body, size of the body.
struct Place {
  uint32_t start, offset, length;

  uint64_t end() const { return uint64_t{offset} + length; }
  uint64_t size() const { return end() - start; }
};

inline uint64_t varint_size(uint64_t value) {
  uint64_t size = 1;
  for (; value > 0x7F; value >>= 7) ++size;
  return size;
}

class Tables {
 public:
  explicit Tables(const llmprism_otlp_tables& rows) : rows_(rows) {}

  const uint8_t* payload() const { return rows_.payload; }
  uint64_t payload_size() const { return rows_.payload_size; }
  uint64_t resource_count() const { return rows_.resource_count; }
  uint64_t scope_count() const { return rows_.scope_count; }
  uint64_t record_count() const { return rows_.record_count; }
  uint32_t attribute_tag() const { return kAttributeTags[rows_.signal]; }

  ResourceRow resource(uint64_t i) const {
    return load<ResourceRow>(static_cast<const uint8_t*>(rows_.resources) + i * sizeof(ResourceRow));
  }
  ScopeRow scope(uint64_t i) const {
    return load<ScopeRow>(static_cast<const uint8_t*>(rows_.scopes) + i * sizeof(ScopeRow));
  }
  Place record(uint64_t i) const {
    const auto* records = static_cast<const uint8_t*>(rows_.records);
    return load<Place>(records + i * kStrides[rows_.signal] + kStarts[rows_.signal]);
  }

  // Where the length stands that belongs to the tag at place.start; 0 if there is none before the body.
  uint64_t find_length(const Place& place) const {
    uint64_t at = place.start;
    while (at < place.offset && rows_.payload[at] >= 0x80) ++at;
    return at + 1 < place.offset ? at + 1 : 0;
  }

  // A place must lie behind what came before it (from) and inside what holds it (to).
  bool is_inside(const Place& place, uint64_t from, uint64_t to) const {
    return from <= place.start && place.start < place.offset && place.end() <= to && find_length(place) != 0;
  }

  uint64_t size_with(const Place& place, uint64_t length) const {
    return find_length(place) - place.start + varint_size(length) + length;
  }

 private:
  static constexpr uint32_t kAttributeTags[3] = {0x4A, 0x32, 0x62};
  static constexpr uint64_t kStrides[3] = {sizeof(SpanRow), sizeof(LogRow), sizeof(MetricRow)};
  static constexpr uint64_t kStarts[3] = {offsetof(SpanRow, start), offsetof(LogRow, start),
                                          offsetof(MetricRow, start)};

  llmprism_otlp_tables rows_;
};

template <typename Row>
Place place_of(const Row& row) {
  return {row.start, row.offset, row.length};
}

}  // namespace llmprism::otlp
