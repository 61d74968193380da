// A growing array without exceptions: what the scanner and the editor collect their results in.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace llmprism::otlp {

// Rows that grow by doubling, zeroed when opened; false from open means there is no memory.
template <typename Row>
class Rows {
 public:
  Rows() = default;
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  ~Rows() { std::free(rows_); }

  uint64_t count() const { return count_; }

  // From now on rows are only counted: the one that is open takes the place of the one before.
  void forget_closed() { keeps_closed_ = false; }

  Row* open(uint64_t how_many) {
    if (!keeps_closed_) return reopen(how_many);
    if (count_ + how_many > capacity_ && !grow(count_ + how_many)) return nullptr;
    Row* first = rows_ + count_;
    if (how_many != 0) std::memset(first, 0, how_many * sizeof(Row));
    count_ += how_many;
    return first;
  }

  Row* rows() const { return rows_; }
  void clear() { count_ = 0; }

  Row* release() {
    Row* rows = rows_;
    rows_ = nullptr;
    return rows;
  }

 private:
  Row* reopen(uint64_t how_many) {
    if (how_many > capacity_ && !grow(how_many)) return nullptr;
    if (how_many != 0) std::memset(rows_, 0, how_many * sizeof(Row));
    count_ += how_many;
    return rows_;
  }

  bool grow(uint64_t least) {
    uint64_t wanted = capacity_ == 0 ? 64 : capacity_ * 2;
    if (wanted < least) wanted = least;
    void* grown = std::realloc(rows_, wanted * sizeof(Row));
    if (grown == nullptr) return false;
    rows_ = static_cast<Row*>(grown);
    capacity_ = wanted;
    return true;
  }

  Row* rows_ = nullptr;
  uint64_t count_ = 0;
  uint64_t capacity_ = 0;
  bool keeps_closed_ = true;
};

}  // namespace llmprism::otlp
