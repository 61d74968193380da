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

// The attribute that nearly all are: a key, then a scalar, lengths below 128, plain ASCII. Half the time of the
// loops above, which see whatever this does not; nothing is said of an attribute for which it returns false.
inline bool read_plain_pair(Request& request, const Field& attribute, KeyValue& pair) {
  const uint8_t* at = attribute.at;
  const uint8_t* stop = attribute.stop;
  if (stop - at < 6 || at[0] != 0x0A || at[1] >= 0x80) return false;
  const uint8_t* value = at + 2 + at[1];
  if (stop - value < 4 || value[0] != 0x12 || value[1] >= 0x80 || value + 2 + value[1] != stop) return false;
  pair.key = at + 2;
  pair.key_size = at[1];
  Field scalar{value[2], 0, value + 3, stop};
  switch (scalar.tag) {
    case 0x0A:
      if (value + 4 + value[3] != stop || !is_ascii(at, static_cast<uint64_t>(stop - at))) return false;
      scalar.at = value + 4;
      note_scalar(request, pair.value, scalar, 0);
      return true;
    case 0x10:
    case 0x18:
      if (stop[-1] >= 0x80 || stop - scalar.at > 8) return false;
      for (const uint8_t* digit = stop; digit-- > scalar.at;) {
        if (digit + 1 != stop && *digit < 0x80) return false;  // two fields, not one number
        scalar.number = scalar.number << 7 | (*digit & 0x7F);
      }
      note_scalar(request, pair.value, scalar, scalar.tag == 0x10 ? scalar.number != 0 : scalar.number);
      break;
    case 0x21:
      if (stop - scalar.at != 8) return false;
      note_scalar(request, pair.value, scalar, load<uint64_t>(scalar.at));
      break;
    default:
      return false;
  }
  return is_ascii(pair.key, pair.key_size);
}

}  // namespace llmprism::otlp
