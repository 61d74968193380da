// AnyValue and KeyValue as the scanner tells them: type, place, bits. Protobuf merge rules hold: the last
// scalar wins, an array that comes in several fields is "in pieces".
#pragma once
#include "otlp_walk.h"

namespace llmprism::otlp {

struct KeyValue {
  const uint8_t* key;
  uint32_t key_size;
  ValueCell value;
};

inline void note_scalar(Request& request, ValueCell& value, const Field& field, uint64_t bits) {
  value = {bits, request.offset_of(field.at), field.size(), field.tag >> 3, 0};
}

inline bool note_container(Request& request, ValueCell& value, const uint8_t* pos, const Field& field, uint32_t depth) {
  const bool is_array = field.tag == 0x2A;
  if (!walk_field(request, pos, field, depth, is_array ? kArrayValue : kKeyValueList)) return false;
  const uint32_t whole = is_array ? kArray : kKvlist;
  const uint32_t pieces = is_array ? kArrayInPieces : kKvlistInPieces;
  const bool is_more = value.type == whole || value.type == pieces;
  value = {0, request.offset_of(field.at), field.size(), is_more ? pieces : whole, 0};
  return true;
}

// Merges the AnyValue in [pos, end) into value.
inline bool read_any_value(Request& request, const uint8_t* pos, const uint8_t* end, uint32_t depth, ValueCell& value) {
  if (value.type == kAbsent) value.type = kEmpty;
  while (pos < end) {
    Field field;
    if (!read_field(request, pos, end, depth, field)) return false;
    switch (field.tag) {
      case 0x0A:
        check_utf8(request, field);
        note_scalar(request, value, field, 0);
        break;
      case 0x10:
        note_scalar(request, value, field, field.number != 0);
        break;
      case 0x18:
      case 0x40:
        note_scalar(request, value, field, field.number);
        break;
      case 0x21:
        note_scalar(request, value, field, load<uint64_t>(field.at));
        break;
      case 0x3A:
        note_scalar(request, value, field, 0);
        break;
      case 0x2A:
      case 0x32:
        if (!note_container(request, value, pos, field, depth)) return false;
        break;
      default:
        break;
    }
    pos = field.stop;
  }
  return true;
}

inline bool read_key_value(Request& request, const uint8_t* pos, const uint8_t* end, uint32_t depth, KeyValue& pair) {
  pair.key = pos;
  pair.key_size = 0;
  pair.value = {0, 0, 0, kEmpty, 0};
  while (pos < end) {
    Field field;
    if (!read_field(request, pos, end, depth, field)) return false;
    if (field.tag == 0x0A) {
      check_utf8(request, field);
      pair.key = field.at;
      pair.key_size = field.size();
    } else if (field.tag == 0x12) {
      if (!has_depth(request, depth, pos)) return false;
      if (!read_any_value(request, field.at, field.stop, depth - 1, pair.value)) return false;
    }
    pos = field.stop;
  }
  return true;
}

}  // namespace llmprism::otlp
