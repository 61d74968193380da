// What is to be appended to which record: edits come in, the slices that the records do not have yet stay.
#pragma once
#include "otlp_fields.h"
#include "otlp_tables.h"

namespace llmprism::otlp {

// The slices to append to one record.
struct Addition {
  uint64_t record, first_slice, slice_count, size;
};

class Additions {
 public:
  explicit Additions(const Tables& tables) : tables_(tables), filter_(tables.attribute_tag()) {}

  bool is_empty() const { return additions_.count() == 0; }
  const Slice* slices_of(const Addition& addition) const { return slices_.rows() + addition.first_slice; }

  // Edits: record indexes in order, and the sizes of their pieces of blob. A refusal is told in failure.
  bool add_fields(Request& failure, const llmprism_otlp_edits& edits) {
    const uint8_t* blob = edits.blob;
    uint64_t left = edits.blob_size;
    for (uint64_t i = 0; i < edits.count;) {
      const uint32_t record = load<uint32_t>(edits.record_indexes + 4 * i);
      uint64_t size = 0;
      for (; i < edits.count && load<uint32_t>(edits.record_indexes + 4 * i) == record; ++i) {
        size += load<uint32_t>(edits.sizes + 4 * i);
      }
      if (size > left || record >= tables_.record_count()) return refuse(failure, kForeignScan);
      if (!add_to_record(failure, record, blob, size)) return false;
      blob += size;
      left -= size;
    }
    return true;
  }

  // Records are asked for in order; rewind() starts over.
  void rewind() { next_ = 0; }

  const Addition* find_addition(uint64_t index) {
    while (next_ < additions_.count() && additions_.rows()[next_].record < index) ++next_;
    if (next_ == additions_.count()) return nullptr;
    const Addition* addition = additions_.rows() + next_;
    return addition->record == index ? addition : nullptr;
  }

 private:
  static bool refuse(Request& failure, Code code) { return failure.refuse(failure.base, code); }

  bool add_to_record(Request& failure, uint32_t index, const uint8_t* blob, uint64_t size) {
    const Place place = tables_.record(index);
    if (place.end() > tables_.payload_size()) return refuse(failure, kForeignScan);
    failure.base = blob;
    if (!filter_.read_wanted(failure, blob, size)) return false;
    if (!filter_.drop_present(tables_.payload() + place.offset, place.length)) return refuse(failure, kForeignScan);
    Addition addition{index, slices_.count(), 0, 0};
    if (!filter_.list_missing(slices_)) return refuse(failure, kNoMemory);
    addition.slice_count = slices_.count() - addition.first_slice;
    if (addition.slice_count == 0) return true;
    for (uint64_t i = 0; i < addition.slice_count; ++i) addition.size += slices_of(addition)[i].size;
    Addition* kept = additions_.open(1);
    if (kept == nullptr) return refuse(failure, kNoMemory);
    *kept = addition;
    return true;
  }

  const Tables& tables_;
  FieldFilter filter_;
  uint64_t next_ = 0;
  Rows<Slice> slices_;
  Rows<Addition> additions_;
};

}  // namespace llmprism::otlp
