#include "otlp_wire.h"

namespace llmprism::otlp {

bool read_long_varint(Request& request, const uint8_t*& pos, const uint8_t* end, const uint8_t* field, uint32_t most,
                      uint64_t& value) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < most; ++i) {
    if (pos >= end) return request.refuse(field, kTruncated);
    const uint8_t byte = *pos++;
    sum |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);  // bits above 64 fall off, as in protobuf
    if (byte < 0x80) {
      value = sum;
      return true;
    }
  }
  return request.refuse(field, kBadVarint);
}

bool skip_group(Request& request, const uint8_t*& pos, const uint8_t* end, const uint8_t* field, uint32_t start_tag,
                uint32_t depth) {
  if (!has_depth(request, depth, field)) return false;
  while (pos < end) {
    // Inside unknown groups upb does not mind the field number 0, so neither do we.
    const uint8_t* inner = pos;
    Field out{};
    if (!read_tag(request, pos, end, out.tag)) return false;
    if ((out.tag & 7) == kEndGroup) {
      if (out.tag >> 3 != start_tag >> 3) return request.refuse(inner, kStrayGroupEnd);
      return true;
    }
    if (!read_value(request, pos, end, inner, depth - 1, out)) return false;
    pos = out.stop;
  }
  return request.refuse(field, kOpenGroup);
}

// RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(const uint8_t* pos, const uint8_t* end) {
  while (pos < end) {
    const uint8_t lead = *pos++;
    if (lead < 0x80) continue;
    if (lead < 0xC2 || lead > 0xF4) return false;
    const int64_t more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if (end - pos < more) return false;
    const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (pos[0] < low || pos[0] > high) return false;
    for (int64_t i = 1; i < more; ++i) {
      if ((pos[i] & 0xC0) != 0x80) return false;
    }
    pos += more;
  }
  return true;
}

}  // namespace llmprism::otlp
