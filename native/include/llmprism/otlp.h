// The OTLP scanner and editor: what they take and hand out over the C ABI. All rows are little-endian
// without padding; src/otel_llmprism/native/otlp_layout.py states the same and a test holds both together.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

#include "llmprism/abi.h"

namespace llmprism::otlp {

static_assert(std::endian::native == std::endian::little, "rows are little-endian");

inline constexpr uint32_t kMaxKeys = 64;
inline constexpr uint32_t kMaxDepth = 100;
inline constexpr uint64_t kMaxPayload = (uint64_t{1} << 31) - 1;
inline constexpr uint64_t kMaxRows = uint64_t{1} << 20;
inline constexpr uint64_t kMaxCells = uint64_t{1} << 24;

enum Signal : uint64_t { kTraces = 0, kLogs = 1, kMetrics = 2 };

enum Code : uint32_t {
  kOk = 0,
  kTruncated = 1,
  kBadVarint = 2,
  kFieldZero = 3,
  kBadWireType = 4,
  kStrayGroupEnd = 5,
  kOpenGroup = 6,
  kPastEnd = 7,
  kTooDeep = 8,
  kBadPacked = 9,
  kTooMany = 10,
  kTooLarge = 11,
  kNoMemory = 100,
  kForeignScan = 101,
  kGrownTooLarge = 102,
};

enum Flag : uint32_t { kBadId = 1, kBadUtf8 = 2, kInPieces = 4 };

// 1 to 8 are the field numbers of AnyValue.
enum ValueType : uint32_t {
  kAbsent = 0,
  kString = 1,
  kBool = 2,
  kInt = 3,
  kDouble = 4,
  kArray = 5,
  kKvlist = 6,
  kBytes = 7,
  kStrindex = 8,
  kEmpty = 9,
  kArrayInPieces = 10,
  kKvlistInPieces = 11,
};

struct ResourceRow {
  uint32_t start, offset, length;
  uint32_t resource_offset, resource_length, schema_url_offset, schema_url_length, attribute_count;
  uint32_t first_scope, scope_count, first_record, record_count, flags;
};
static_assert(sizeof(ResourceRow) == 52 && offsetof(ResourceRow, flags) == 48);
static_assert(offsetof(ResourceRow, first_scope) == 32 && offsetof(ResourceRow, record_count) == 44);

struct ScopeRow {
  uint32_t start, offset, length, resource;
  uint32_t scope_offset, scope_length, name_offset, name_length, version_offset, version_length;
  uint32_t schema_url_offset, schema_url_length, attribute_count, first_record, record_count, flags;
};
static_assert(sizeof(ScopeRow) == 64 && offsetof(ScopeRow, flags) == 60);
static_assert(offsetof(ScopeRow, schema_url_offset) == 40 && offsetof(ScopeRow, first_record) == 52);

struct SpanRow {
  uint64_t start_ns, end_ns;
  uint8_t trace_id[16], span_id[8], parent_span_id[8];
  uint32_t start, offset, length, resource, scope, name_offset, name_length;
  int32_t kind, status_code;
  uint32_t status_message_offset, status_message_length;
  uint32_t attribute_count, event_count, link_count, trace_flags, flags;
};
static_assert(sizeof(SpanRow) == 112 && offsetof(SpanRow, flags) == 108);
static_assert(offsetof(SpanRow, parent_span_id) == 40 && offsetof(SpanRow, start) == 48);
static_assert(offsetof(SpanRow, kind) == 76 && offsetof(SpanRow, attribute_count) == 92);

struct LogRow {
  uint64_t time_ns, observed_ns;
  uint8_t trace_id[16], span_id[8];
  uint32_t start, offset, length, resource, scope;
  int32_t severity;
  uint32_t severity_text_offset, severity_text_length, event_name_offset, event_name_length;
  uint32_t body_offset, body_length, body_type, attribute_count, trace_flags, flags;
};
static_assert(sizeof(LogRow) == 104 && offsetof(LogRow, flags) == 100);
static_assert(offsetof(LogRow, start) == 40 && offsetof(LogRow, body_offset) == 80);

struct MetricRow {
  uint32_t start, offset, length, resource, scope, name_offset, name_length, unit_offset, unit_length, type;
  int32_t temporality;
  uint32_t is_monotonic, point_count, flags;
};
static_assert(sizeof(MetricRow) == 56 && offsetof(MetricRow, flags) == 52);
static_assert(offsetof(MetricRow, type) == 36 && offsetof(MetricRow, temporality) == 40);

struct ValueCell {
  uint64_t bits;
  uint32_t offset, length, type, reserved;
};
static_assert(sizeof(ValueCell) == 24 && offsetof(ValueCell, type) == 16);

}  // namespace llmprism::otlp

// Filled by llmprism_otlp_scan, emptied by llmprism_otlp_release (also after an error).
struct llmprism_otlp_result {
  void* resources;
  void* scopes;
  void* records;
  void* values;
  void* resource_values;
  uint64_t resource_count;
  uint64_t scope_count;
  uint64_t record_count;
  uint64_t bad_id_count;
  uint64_t invalid_utf8_count;
  uint64_t error_offset;
  uint64_t error_code;
};

// A payload and the rows that a scan of it gave.
struct llmprism_otlp_tables {
  const uint8_t* payload;
  uint64_t payload_size;
  const void* resources;
  const void* scopes;
  const void* records;
  uint64_t resource_count;
  uint64_t scope_count;
  uint64_t record_count;
  uint64_t signal;
};

// Fields to append: u32 record indexes in order, and the u32 sizes of their pieces of blob.
struct llmprism_otlp_edits {
  const uint8_t* blob;
  uint64_t blob_size;
  const uint8_t* record_indexes;
  const uint8_t* sizes;
  uint64_t count;
};

// What an edit is going to be. editor is NULL when nothing changes or on an error; else the caller makes
// room for size bytes and calls llmprism_otlp_emit, which frees it. Payload, rows, keep and blob stay until then.
struct llmprism_otlp_edit {
  void* editor;
  uint64_t size;
  uint64_t error_offset;
  uint64_t error_code;
};

// Which spans get which fields. names: u8 is a prefix, u32 length and bytes of each; one must hold. key: packed
// as below, at most one; value_type kAbsent: whatever its value; texts compare by text, all else by value_bits.
struct llmprism_otlp_rule {
  const uint8_t* names;
  uint64_t name_count;
  const uint8_t* key;
  uint64_t key_count;
  uint64_t value_type;
  uint64_t value_bits;
  const uint8_t* text;
  uint64_t text_size;
  const uint8_t* fields;
  uint64_t fields_size;
};

// Keys come packed: length (u32) and bytes of each, one after the other; at most 64. is_checked: the payload
// was accepted before, so what no column needs is stepped over.
LLMPRISM_API void llmprism_otlp_scan(const uint8_t* payload, uint64_t size, uint64_t signal, uint64_t is_checked,
                                     const uint8_t* record_keys, uint64_t record_key_count,
                                     const uint8_t* resource_keys, uint64_t resource_key_count,
                                     llmprism_otlp_result* result);
LLMPRISM_API void llmprism_otlp_release(llmprism_otlp_result* result);

// The same refusals and counts as a scan without keys, and no rows: nothing to release.
LLMPRISM_API void llmprism_otlp_check(const uint8_t* payload, uint64_t size, uint64_t signal,
                                      llmprism_otlp_result* result);

// keep: one byte a record. drop_empty: also leave out what held no record from the start.
LLMPRISM_API void llmprism_otlp_select(const llmprism_otlp_tables* tables, const uint8_t* keep, uint64_t drop_empty,
                                       llmprism_otlp_edit* edit);
// The fields must be well framed; see llmprism_otlp_edits.
LLMPRISM_API void llmprism_otlp_append(const llmprism_otlp_tables* tables, const llmprism_otlp_edits* edits,
                                       llmprism_otlp_edit* edit);
// Writes size bytes to out (NULL: only frees).
LLMPRISM_API void llmprism_otlp_emit(llmprism_otlp_edit* edit, uint8_t* out);
// Scan (of bytes that were checked before), match and append at once, for traces; what the rule points to stays
// until its emit.
LLMPRISM_API void llmprism_otlp_stamp(const uint8_t* payload, uint64_t size, const llmprism_otlp_rule* rule,
                                      llmprism_otlp_edit* edit);
LLMPRISM_API void llmprism_otlp_emit_stamps(llmprism_otlp_edit* edit, uint8_t* out);
