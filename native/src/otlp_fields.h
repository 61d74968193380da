// Which of the fields to append does a record not have yet? An attribute is had when its key is, any
// other field when its bytes are. Linear: the fields to append are hashed, the record is read once.
#pragma once
#include "otlp_rows.h"
#include "otlp_wire.h"

namespace llmprism::otlp {

struct Slice {
  const uint8_t* at;
  uint64_t size;
};

class FieldFilter {
 public:
  explicit FieldFilter(uint32_t attribute_tag) : attribute_tag_(attribute_tag) {}

  // Reads the fields to append; a refusal is told in request, whose base is blob.
  bool read_wanted(Request& request, const uint8_t* blob, uint64_t size);
  // Forgets those that the record has. False: the record is not well framed.
  bool drop_present(const uint8_t* record, uint64_t size);
  // Hands out what is left, in order; false without memory.
  bool list_missing(Rows<Slice>& slices) const;

 private:
  struct Wanted {
    Slice raw;
    Slice same;  // what makes it the same as another
    uint64_t next;
    uint32_t tag;
    bool is_present;
  };
  static constexpr uint64_t kNone = UINT64_MAX;

  bool find_identity(Request& request, const Field& field, Slice& same) const;
  uint64_t* find_head(uint32_t tag, const Slice& same) const;
  Wanted* find_wanted(uint32_t tag, const Slice& same) const;
  bool chain_wanted();

  uint32_t attribute_tag_;
  uint64_t tags_ = 0;  // one bit a tag modulo 64: most fields of a record need no closer look
  Rows<Wanted> wanted_;
  Rows<uint64_t> heads_;
};

}  // namespace llmprism::otlp
