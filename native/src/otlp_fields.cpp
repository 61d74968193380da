#include "otlp_fields.h"

namespace llmprism::otlp {
namespace {

uint64_t bit_of(uint32_t tag) { return uint64_t{1} << (tag >> 3 & 63); }

// FNV-1a. Only our own fields are chained, so a hostile record can make no chain longer.
uint64_t hash(uint32_t tag, const Slice& same) {
  uint64_t value = 0xCBF29CE484222325 ^ tag;
  for (uint64_t i = 0; i < same.size; ++i) value = (value ^ same.at[i]) * 0x100000001B3;
  return value ^ value >> 32;
}

}  // namespace

bool FieldFilter::read_wanted(Request& request, const uint8_t* blob, uint64_t size) {
  wanted_.clear();
  tags_ = 0;
  const uint8_t* end = blob + size;
  for (const uint8_t* pos = blob; pos < end;) {
    Field field;
    if (!read_field(request, pos, end, kMaxDepth, field)) return false;
    Slice same;
    if (!find_identity(request, field, same)) return false;
    Wanted* wanted = wanted_.open(1);
    if (wanted == nullptr) return request.refuse(pos, kNoMemory);
    *wanted = {{pos, static_cast<uint64_t>(field.stop - pos)}, same, kNone, field.tag, false};
    tags_ |= bit_of(field.tag);
    pos = field.stop;
  }
  return chain_wanted() || request.refuse(blob, kNoMemory);
}

bool FieldFilter::chain_wanted() {
  heads_.clear();
  uint64_t size = 16;
  while (size < wanted_.count() * 2) size *= 2;
  if (heads_.open(size) == nullptr) return false;
  std::memset(heads_.rows(), 0xFF, size * sizeof(uint64_t));
  for (uint64_t i = 0; i < wanted_.count(); ++i) {
    Wanted& wanted = wanted_.rows()[i];
    if (find_wanted(wanted.tag, wanted.same) != nullptr) {
      wanted.is_present = true;  // asked for twice: the first is appended
      continue;
    }
    uint64_t* head = find_head(wanted.tag, wanted.same);
    wanted.next = *head;
    *head = i;
  }
  return true;
}

uint64_t* FieldFilter::find_head(uint32_t tag, const Slice& same) const {
  return heads_.rows() + (hash(tag, same) & (heads_.count() - 1));
}

FieldFilter::Wanted* FieldFilter::find_wanted(uint32_t tag, const Slice& same) const {
  for (uint64_t i = *find_head(tag, same); i != kNone; i = wanted_.rows()[i].next) {
    Wanted& wanted = wanted_.rows()[i];
    if (wanted.tag == tag && wanted.same.size == same.size && std::memcmp(wanted.same.at, same.at, same.size) == 0) {
      return &wanted;
    }
  }
  return nullptr;
}

bool FieldFilter::drop_present(const uint8_t* record, uint64_t size) {
  Request request{record};
  const uint8_t* end = record + size;
  for (const uint8_t* pos = record; pos < end;) {
    Field field;
    if (!read_field(request, pos, end, kMaxDepth, field)) return false;
    if ((tags_ & bit_of(field.tag)) != 0) {
      Slice same;
      if (!find_identity(request, field, same)) return false;
      Wanted* wanted = find_wanted(field.tag, same);
      if (wanted != nullptr) wanted->is_present = true;
    }
    pos = field.stop;
  }
  return true;
}

bool FieldFilter::find_identity(Request& request, const Field& field, Slice& same) const {
  same = {field.at, field.size()};
  if (field.tag != attribute_tag_) return true;
  same.size = 0;
  for (const uint8_t* pos = field.at; pos < field.stop;) {
    Field inner;
    if (!read_field(request, pos, field.stop, kMaxDepth, inner)) return false;
    if (inner.tag == 0x0A) same = {inner.at, inner.size()};
    pos = inner.stop;
  }
  return true;
}

bool FieldFilter::list_missing(Rows<Slice>& slices) const {
  for (uint64_t i = 0; i < wanted_.count(); ++i) {
    const Wanted& wanted = wanted_.rows()[i];
    if (wanted.is_present) continue;
    Slice* slice = slices.open(1);
    if (slice == nullptr) return false;
    *slice = wanted.raw;
  }
  return true;
}

}  // namespace llmprism::otlp
