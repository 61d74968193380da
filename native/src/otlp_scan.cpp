// The envelope of an export request (resource, scope, record) and the C ABI of the scanner. Framing is the
// same for all signals: field 1 holds resources, 2 scopes or records, 3 a schema URL.
#include <initializer_list>

#include "otlp_record.h"
#include "otlp_rows.h"

namespace llmprism::otlp {
namespace {

template <typename Record>
class Scanner {
 public:
  Scanner(const Request& request, const KeyTable& record_keys, const KeyTable& resource_keys)
      : request_(request), record_keys_(record_keys), resource_keys_(resource_keys) {}

  bool scan_request(uint64_t size) {
    const uint8_t* end = request_.base + size;
    for (const uint8_t* pos = request_.base; pos < end;) {
      Field field;
      if (!read_field(request_, pos, end, kMaxDepth, field)) return false;
      if (field.tag == 0x0A && !read_resource(pos, field, kMaxDepth - 1)) return false;
      pos = field.stop;
    }
    return true;
  }

  void keep_no_rows() {
    resources_.forget_closed();
    scopes_.forget_closed();
    records_.forget_closed();
  }

  void hand_over_counts(llmprism_otlp_result& result) const {
    result.error_code = request_.error_code;
    result.error_offset = request_.error_offset;
    if (request_.error_code != kOk) return;
    result.resource_count = resources_.count();
    result.scope_count = scopes_.count();
    result.record_count = records_.count();
    result.bad_id_count = bad_records_;
    result.invalid_utf8_count = request_.invalid_utf8;
  }

  void hand_over(llmprism_otlp_result& result) {
    hand_over_counts(result);
    if (request_.error_code != kOk) return;
    result.resources = resources_.release();
    result.scopes = scopes_.release();
    result.records = records_.release();
    result.values = values_.release();
    result.resource_values = resource_values_.release();
  }

 private:
  template <typename Row>
  bool open_row(Rows<Row>& rows, Rows<ValueCell>& cells, uint32_t keys, const uint8_t* field, Row*& row,
                ValueCell*& first_cell) {
    if (rows.count() >= kMaxRows || (rows.count() + 1) * keys > kMaxCells) return request_.refuse(field, kTooMany);
    row = rows.open(1);
    first_cell = keys == 0 ? nullptr : cells.open(keys);
    if (row == nullptr || (keys != 0 && first_cell == nullptr)) return request_.refuse(field, kNoMemory);
    return true;
  }

  template <typename Row>
  void place(Row& row, const uint8_t* field, const Field& body) {
    row.start = request_.offset_of(field);
    row.offset = request_.offset_of(body.at);
    row.length = body.size();
  }

  static void note_piece(const Field& field, uint32_t offset, uint32_t& place, uint32_t& length, uint32_t& flags,
                         bool& is_seen) {
    if (is_seen) flags |= kInPieces;
    is_seen = true;
    place = offset;
    length = field.size();
  }

  bool read_resource(const uint8_t* start, const Field& body, uint32_t depth) {
    ResourceRow* row = nullptr;
    ValueCell* cells = nullptr;
    if (!open_row(resources_, resource_values_, resource_keys_.count(), start, row, cells)) return false;
    place(*row, start, body);
    row->first_scope = static_cast<uint32_t>(scopes_.count());
    row->first_record = static_cast<uint32_t>(records_.count());
    const uint64_t bad_before = request_.invalid_utf8;
    uint64_t bad_below = 0;
    bool is_seen = false;
    for (const uint8_t* pos = body.at; pos < body.stop;) {
      Field field;
      if (!read_field(request_, pos, body.stop, depth, field)) return false;
      if (field.tag == 0x0A) {
        note_piece(field, request_.offset_of(field.at), row->resource_offset, row->resource_length, row->flags,
                   is_seen);
        if (!read_resource_message(*row, cells, field, depth - 1)) return false;
      } else if (field.tag == 0x12) {
        const uint64_t before = request_.invalid_utf8;
        if (!read_scope(pos, field, depth - 1)) return false;
        bad_below += request_.invalid_utf8 - before;
      } else if (field.tag == 0x1A) {
        note_text(request_, field, row->schema_url_offset, row->schema_url_length);
      }
      pos = field.stop;
    }
    row->scope_count = static_cast<uint32_t>(scopes_.count()) - row->first_scope;
    row->record_count = static_cast<uint32_t>(records_.count()) - row->first_record;
    if (request_.invalid_utf8 > bad_before + bad_below) row->flags |= kBadUtf8;
    return true;
  }

  bool read_resource_message(ResourceRow& row, ValueCell* cells, const Field& body, uint32_t depth) {
    for (const uint8_t* pos = body.at; pos < body.stop;) {
      Field field;
      if (!read_field(request_, pos, body.stop, depth, field)) return false;
      if (field.tag == 0x0A) {
        ++row.attribute_count;
        if (!read_attribute(request_, pos, field, depth, resource_keys_, cells)) return false;
      } else if (field.tag == 0x1A) {
        if (!walk_field(request_, pos, field, depth, kEntityRef)) return false;
      }
      pos = field.stop;
    }
    return true;
  }

  bool read_scope(const uint8_t* start, const Field& body, uint32_t depth) {
    ScopeRow* row = nullptr;
    ValueCell* no_cells = nullptr;
    Rows<ValueCell> none;
    if (!open_row(scopes_, none, 0, start, row, no_cells)) return false;
    place(*row, start, body);
    row->resource = static_cast<uint32_t>(resources_.count() - 1);
    row->first_record = static_cast<uint32_t>(records_.count());
    const uint64_t bad_before = request_.invalid_utf8;
    uint64_t bad_below = 0;
    bool is_seen = false;
    for (const uint8_t* pos = body.at; pos < body.stop;) {
      Field field;
      if (!read_field(request_, pos, body.stop, depth, field)) return false;
      if (field.tag == 0x12) {
        const uint64_t before = request_.invalid_utf8;
        if (!read_one_record(pos, field, depth - 1)) return false;
        bad_below += request_.invalid_utf8 - before;
      } else if (field.tag == 0x0A) {
        note_piece(field, request_.offset_of(field.at), row->scope_offset, row->scope_length, row->flags, is_seen);
        if (!read_scope_message(*row, field, depth - 1)) return false;
      } else if (field.tag == 0x1A) {
        note_text(request_, field, row->schema_url_offset, row->schema_url_length);
      }
      pos = field.stop;
    }
    row->record_count = static_cast<uint32_t>(records_.count()) - row->first_record;
    if (request_.invalid_utf8 > bad_before + bad_below) row->flags |= kBadUtf8;
    return true;
  }

  bool read_scope_message(ScopeRow& row, const Field& body, uint32_t depth) {
    for (const uint8_t* pos = body.at; pos < body.stop;) {
      Field field;
      if (!read_field(request_, pos, body.stop, depth, field)) return false;
      if (field.tag == 0x0A) note_text(request_, field, row.name_offset, row.name_length);
      if (field.tag == 0x12) note_text(request_, field, row.version_offset, row.version_length);
      if (field.tag == 0x1A) {
        ++row.attribute_count;
        if (!walk_field(request_, pos, field, depth, kKeyValue)) return false;
      }
      pos = field.stop;
    }
    return true;
  }

  bool read_one_record(const uint8_t* start, const Field& body, uint32_t depth) {
    Record* row = nullptr;
    ValueCell* cells = nullptr;
    if (!open_row(records_, values_, record_keys_.count(), start, row, cells)) return false;
    place(*row, start, body);
    row->resource = static_cast<uint32_t>(resources_.count() - 1);
    row->scope = static_cast<uint32_t>(scopes_.count() - 1);
    const uint64_t bad_utf8 = request_.invalid_utf8;
    const uint64_t bad_ids = request_.bad_ids;
    if (!read_record(request_, *row, depth, record_keys_, cells)) return false;
    if (request_.bad_ids > bad_ids) row->flags |= kBadId;
    bad_records_ += row->flags & kBadId;
    if (request_.invalid_utf8 > bad_utf8) row->flags |= kBadUtf8;
    return true;
  }

  Request request_;
  const KeyTable& record_keys_;
  const KeyTable& resource_keys_;
  uint64_t bad_records_ = 0;
  Rows<ResourceRow> resources_;
  Rows<ScopeRow> scopes_;
  Rows<Record> records_;
  Rows<ValueCell> values_;
  Rows<ValueCell> resource_values_;
};

template <typename Record>
void scan_as(const Request& request, uint64_t size, const KeyTable& record_keys, const KeyTable& resource_keys,
             llmprism_otlp_result& result) {
  Scanner<Record> scanner(request, record_keys, resource_keys);
  scanner.scan_request(size);
  scanner.hand_over(result);
}

template <typename Record>
void check_as(const Request& request, uint64_t size, llmprism_otlp_result& result) {
  const KeyTable no_keys(nullptr, 0);
  Scanner<Record> scanner(request, no_keys, no_keys);
  scanner.keep_no_rows();
  scanner.scan_request(size);
  scanner.hand_over_counts(result);
}

}  // namespace
}  // namespace llmprism::otlp

void llmprism_otlp_check(const uint8_t* payload, uint64_t size, uint64_t signal, llmprism_otlp_result* result) {
  using namespace llmprism::otlp;
  *result = {};
  if (size > kMaxPayload) {
    result->error_code = kTooLarge;
    return;
  }
  const Request request{payload};
  switch (signal) {
    case kTraces:
      return check_as<SpanRow>(request, size, *result);
    case kLogs:
      return check_as<LogRow>(request, size, *result);
    default:
      return check_as<MetricRow>(request, size, *result);
  }
}

void llmprism_otlp_scan(const uint8_t* payload, uint64_t size, uint64_t signal, uint64_t is_checked,
                        const uint8_t* record_keys, uint64_t record_key_count, const uint8_t* resource_keys,
                        uint64_t resource_key_count, llmprism_otlp_result* result) {
  using namespace llmprism::otlp;
  *result = {};
  if (size > kMaxPayload || record_key_count > kMaxKeys || resource_key_count > kMaxKeys) {
    result->error_code = kTooLarge;
    return;
  }
  const Request request{payload, is_checked != 0};
  const KeyTable of_records(record_keys, record_key_count);
  const KeyTable of_resources(resource_keys, resource_key_count);
  switch (signal) {
    case kTraces:
      return scan_as<SpanRow>(request, size, of_records, of_resources, *result);
    case kLogs:
      return scan_as<LogRow>(request, size, of_records, of_resources, *result);
    default:
      return scan_as<MetricRow>(request, size, of_records, of_resources, *result);
  }
}

void llmprism_otlp_release(llmprism_otlp_result* result) {
  for (void* block : {result->resources, result->scopes, result->records, result->values, result->resource_values}) {
    std::free(block);
  }
  *result = {};
}
