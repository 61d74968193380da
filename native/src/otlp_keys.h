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

  // The first of equal keys is the one that is told, so a filled cell stays.
  void note(ValueCell* cells, const KeyValue& pair) const {
    if (count_ == 0) return;
    for (uint8_t i = heads_[hash(pair.key, pair.key_size)]; i != kNone; i = next_[i]) {
      if (sizes_[i] == pair.key_size && std::memcmp(keys_[i], pair.key, pair.key_size) == 0) {
        if (cells[i].type == kAbsent) cells[i] = pair.value;
        return;
      }
    }
  }

 private:
  static constexpr uint8_t kNone = 0xFF;

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
