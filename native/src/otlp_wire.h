// The protobuf wire format over a byte range: every read is bounded by the end of the message it is in.
// Knows nothing of OTLP. src/otel_llmprism/native/otlp_twin_wire.py is the same in Python, errors included.
#pragma once
#include <cstring>

#include "llmprism/otlp.h"

namespace llmprism::otlp {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLen = 2, kStartGroup = 3, kEndGroup = 4, kFixed32 = 5 };

// A request under the scanner: where it starts, what was odd but not refused, why it was refused.
struct Request {
  const uint8_t* base;
  bool is_checked = false;  // accepted before: step over what no column needs
  uint64_t invalid_utf8 = 0;
  uint64_t bad_ids = 0;
  uint64_t error_offset = 0;
  uint32_t error_code = kOk;

  [[gnu::cold, gnu::noinline]] bool refuse(const uint8_t* field, Code code) {
    error_offset = static_cast<uint64_t>(field - base);
    error_code = code;
    return false;
  }
  uint32_t offset_of(const uint8_t* place) const { return static_cast<uint32_t>(place - base); }
};

struct Field {
  uint32_t tag;
  uint64_t number;  // of a varint
  const uint8_t* at;
  const uint8_t* stop;

  uint32_t size() const { return static_cast<uint32_t>(stop - at); }
};

template <typename T>
inline T load(const uint8_t* place) {
  T value;
  std::memcpy(&value, place, sizeof value);
  return value;
}

// The slow end of read_varint: more than one byte, or none.
[[gnu::noinline]] bool read_long_varint(Request& request, const uint8_t*& pos, const uint8_t* end, const uint8_t* field,
                                        uint32_t most, uint64_t& value);
bool skip_group(Request& request, const uint8_t*& pos, const uint8_t* end, const uint8_t* field, uint32_t start_tag,
                uint32_t depth);

inline bool read_varint(Request& request, const uint8_t*& pos, const uint8_t* end, const uint8_t* field, uint32_t most,
                        uint64_t& value) {
  if (pos < end && *pos < 0x80) [[likely]] {
    value = *pos++;
    return true;
  }
  return read_long_varint(request, pos, end, field, most, value);
}

inline bool read_tag(Request& request, const uint8_t*& pos, const uint8_t* end, uint32_t& tag) {
  const uint8_t* field = pos;
  uint64_t wide;
  if (!read_varint(request, pos, end, field, 5, wide)) return false;
  if (wide > UINT32_MAX) [[unlikely]]
    return request.refuse(field, kBadVarint);
  tag = static_cast<uint32_t>(wide);
  return true;
}

inline bool read_value(Request& request, const uint8_t* pos, const uint8_t* end, const uint8_t* field, uint32_t depth,
                       Field& out) {
  switch (out.tag & 7) {
    case kLen: {
      uint64_t size;
      if (!read_varint(request, pos, end, field, 5, size)) return false;
      if (size > static_cast<uint64_t>(end - pos)) [[unlikely]]
        return request.refuse(field, kPastEnd);
      out.at = pos;
      out.stop = pos + size;
      return true;
    }
    case kVarint:
      out.at = pos;
      if (!read_varint(request, pos, end, field, 10, out.number)) return false;
      out.stop = pos;
      return true;
    case kFixed64:
    case kFixed32: {
      const int64_t width = (out.tag & 7) == kFixed64 ? 8 : 4;
      if (end - pos < width) [[unlikely]]
        return request.refuse(field, kTruncated);
      out.at = pos;
      out.stop = pos + width;
      return true;
    }
    case kStartGroup:
      out.at = pos;
      if (!skip_group(request, pos, end, field, out.tag, depth)) return false;
      out.stop = pos;
      return true;
    default:
      return request.refuse(field, kBadWireType);
  }
}

// Reads the field at pos, which is before end; the next one starts at out.stop.
inline bool read_field(Request& request, const uint8_t* pos, const uint8_t* end, uint32_t depth, Field& out) {
  const uint8_t* field = pos;
  if (!read_tag(request, pos, end, out.tag)) return false;
  if (out.tag < 8) [[unlikely]]
    return request.refuse(field, kFieldZero);
  if ((out.tag & 7) == kEndGroup) [[unlikely]]
    return request.refuse(field, kStrayGroupEnd);
  return read_value(request, pos, end, field, depth, out);
}

inline bool has_depth(Request& request, uint32_t depth, const uint8_t* field) {
  return depth != 0 || request.refuse(field, kTooDeep);
}

bool is_utf8(const uint8_t* pos, const uint8_t* end);

inline bool is_ascii(const uint8_t* pos, uint64_t size) {
  constexpr uint64_t kHigh = 0x8080808080808080;
  if (size >= 8) {
    const uint8_t* last = pos + size - 8;
    uint64_t seen = load<uint64_t>(last);  // overlaps the loop instead of a byte-wise rest
    for (; pos < last; pos += 8) seen |= load<uint64_t>(pos);
    return (seen & kHigh) == 0;
  }
  uint8_t seen = 0;
  for (uint64_t i = 0; i < size; ++i) seen |= pos[i];
  return seen < 0x80;
}

inline void check_utf8(Request& request, const Field& text) {
  if (request.is_checked) return;
  if (!is_ascii(text.at, text.size())) [[unlikely]]
    request.invalid_utf8 += !is_utf8(text.at, text.stop);
}

}  // namespace llmprism::otlp
