// The selected keys as a small hash table, built once a scan (at most 64 keys), probed once an attribute.
#pragma once
#include "otlp_value.h"

namespace llmprism::otlp {

class KeyTable {
 public:
  KeyTable(const uint8_t* packed, uint64_t count) : count_(static_cast<uint32_t>(count)) {
    std::memset(heads_, kNone, sizeof heads_);
    for (uint32_t i = 0; i < count_; ++i) {
      sizes_[i] = load<uint32_t>(packed);
      keys_[i] = packed + 4;
      packed = keys_[i] + sizes_[i];
      uint8_t& head = heads_[hash(keys_[i], sizes_[i])];
      next_[i] = head;
      head = static_cast<uint8_t>(i);
    }
  }

  uint32_t count() const { return count_; }

  // Of an attribute that was checked before: true when its key is none of ours. Sees only the usual form, one key
  // and one value behind it; of any other nothing is said.
  bool may_skip(const Field& attribute) const {
    if (count_ == 0) return true;
    const uint8_t* at = attribute.at;
    const uint64_t size = attribute.stop - at;
    if (size < 4 || at[0] != 0x0A || at[1] >= 0x80) return false;
    const uint32_t key_size = at[1];
    const uint64_t value_at = uint64_t{key_size} + 4;
    if (value_at > size || at[value_at - 2] != 0x12 || at[value_at - 1] >= 0x80) return false;
    if (value_at + at[value_at - 1] != size) return false;
    return find(at + 2, key_size) == kNone;
  }

  // The first of equal keys is the one that is told, so a filled cell stays.
  void note(ValueCell* cells, const KeyValue& pair) const {
    if (count_ == 0) return;
    const uint8_t i = find(pair.key, pair.key_size);
    if (i != kNone && cells[i].type == kAbsent) cells[i] = pair.value;
  }

 private:
  static constexpr uint8_t kNone = 0xFF;

  uint8_t find(const uint8_t* key, uint32_t size) const {
    uint8_t i = heads_[hash(key, size)];
    while (i != kNone && (sizes_[i] != size || std::memcmp(keys_[i], key, size) != 0)) i = next_[i];
    return i;
  }

  static uint8_t hash(const uint8_t* key, uint32_t size) {
    if (size == 0) return 0;
    return static_cast<uint8_t>(size * 37 + key[size - 1] * 31 + key[size / 2] * 7 + key[0]);
  }

  uint32_t count_;
  uint32_t sizes_[kMaxKeys];
  const uint8_t* keys_[kMaxKeys];
  uint8_t next_[kMaxKeys];
  uint8_t heads_[256];
};

}  // namespace llmprism::otlp
