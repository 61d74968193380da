// Drops records from a scanned request or appends fields to them. Only the lengths that enclose a change
// are written anew; every place in the tables is checked against the payload before it is used.
#include <new>

#include "otlp_fields.h"

namespace llmprism::otlp {
namespace {

struct Place {
  uint32_t start, offset, length;

  uint64_t end() const { return uint64_t{offset} + length; }
  uint64_t size() const { return end() - start; }
};

enum Change : uint8_t { kSame = 0, kResized, kDropped };

// What becomes of a resource, a scope or a record.
struct Plan {
  uint64_t length;
  Change change;
};

// The slices to append to one record.
struct Addition {
  uint64_t record, first_slice, slice_count, size;
};

uint64_t varint_size(uint64_t value) {
  uint64_t size = 1;
  for (; value > 0x7F; value >>= 7) ++size;
  return size;
}

class Editor {
 public:
  explicit Editor(const llmprism_otlp_tables& tables)
      : tables_(tables), request_{tables.payload}, filter_(kAttributeTags[tables.signal]) {}

  void drop_records(const uint8_t* keep, bool drop_empty) {
    keep_ = keep;
    drop_empty_ = drop_empty;
  }

  bool add_fields(const uint8_t* blob, uint64_t blob_size, const uint8_t* indexes, const uint8_t* sizes,
                  uint64_t count) {
    for (uint64_t i = 0; i < count;) {
      const uint32_t record = load<uint32_t>(indexes + 4 * i);
      uint64_t size = 0;
      for (; i < count && load<uint32_t>(indexes + 4 * i) == record; ++i) size += load<uint32_t>(sizes + 4 * i);
      if (size > blob_size || record >= tables_.record_count) return fail(kForeignScan);
      if (!add_to_record(record, blob, size)) return false;
      blob += size;
      blob_size -= size;
    }
    return true;
  }

  bool is_needed() const {
    if (keep_ == nullptr) return additions_.count() != 0;
    return drop_empty_ || std::memchr(keep_, 0, tables_.record_count) != nullptr;
  }

  // Works out what becomes of every envelope, and the size of it all.
  bool plan(uint64_t& total) {
    if (plans_.open(tables_.resource_count + tables_.scope_count + 1) == nullptr) return fail(kNoMemory);
    if (!plan_resources(total)) return false;
    return total <= kMaxPayload || fail(kGrownTooLarge);
  }

  void emit(uint8_t* out) {
    out_ = out;
    emit_resources();
  }

  uint32_t error_code() const { return request_.error_code; }
  uint64_t error_offset() const { return request_.error_offset; }

 private:
  static constexpr uint32_t kAttributeTags[3] = {0x4A, 0x32, 0x62};
  static constexpr uint64_t kStrides[3] = {sizeof(SpanRow), sizeof(LogRow), sizeof(MetricRow)};
  static constexpr uint64_t kStarts[3] = {offsetof(SpanRow, start), offsetof(LogRow, start),
                                          offsetof(MetricRow, start)};

  bool fail(Code code) {
    request_.error_code = code;
    return false;
  }

  ResourceRow resource(uint64_t i) const {
    return load<ResourceRow>(static_cast<const uint8_t*>(tables_.resources) + i * sizeof(ResourceRow));
  }
  ScopeRow scope(uint64_t i) const {
    return load<ScopeRow>(static_cast<const uint8_t*>(tables_.scopes) + i * sizeof(ScopeRow));
  }
  Place record(uint64_t i) const {
    const auto* rows = static_cast<const uint8_t*>(tables_.records);
    return load<Place>(rows + i * kStrides[tables_.signal] + kStarts[tables_.signal]);
  }
  Plan& resource_plan(uint64_t i) const { return plans_.rows()[i]; }
  Plan& scope_plan(uint64_t i) const { return plans_.rows()[tables_.resource_count + i]; }
  bool is_kept(uint64_t i) const { return keep_ == nullptr || keep_[i] != 0; }

  bool add_to_record(uint32_t index, const uint8_t* blob, uint64_t size) {
    const Place place = record(index);
    if (place.end() > tables_.payload_size) return fail(kForeignScan);
    Request of_blob{blob};
    if (!filter_.read_wanted(of_blob, blob, size)) {
      request_.error_offset = of_blob.error_offset;
      return fail(static_cast<Code>(of_blob.error_code));
    }
    if (!filter_.drop_present(tables_.payload + place.offset, place.length)) return fail(kForeignScan);
    Addition addition{index, slices_.count(), 0, 0};
    if (!filter_.list_missing(slices_)) return fail(kNoMemory);
    addition.slice_count = slices_.count() - addition.first_slice;
    if (addition.slice_count == 0) return true;
    for (uint64_t i = addition.first_slice; i < slices_.count(); ++i) addition.size += slices_.rows()[i].size;
    Addition* kept = additions_.open(1);
    if (kept == nullptr) return fail(kNoMemory);
    *kept = addition;
    return true;
  }

  // Records are visited in order, so the additions are, too.
  const Addition* find_addition(uint64_t index) {
    while (next_addition_ < additions_.count() && additions_.rows()[next_addition_].record < index) ++next_addition_;
    if (next_addition_ == additions_.count()) return nullptr;
    const Addition* addition = additions_.rows() + next_addition_;
    return addition->record == index ? addition : nullptr;
  }

  // Where the length stands that belongs to the tag at place.start; 0 if there is none before the body.
  uint64_t find_length(const Place& place) const {
    uint64_t at = place.start;
    while (at < place.offset && tables_.payload[at] >= 0x80) ++at;
    return at + 1 < place.offset ? at + 1 : 0;
  }

  // A place must lie behind what came before it (from) and inside what holds it (to).
  bool is_inside(const Place& place, uint64_t from, uint64_t to) const {
    return from <= place.start && place.start < place.offset && place.end() <= to && find_length(place) != 0;
  }

  uint64_t size_with(const Place& place, uint64_t length) const {
    return find_length(place) - place.start + varint_size(length) + length;
  }

  bool plan_resources(uint64_t& total) {
    total = drop_empty_ ? 0 : tables_.payload_size;
    uint64_t from = 0, next_scope = 0, next_record = 0;
    for (uint64_t i = 0; i < tables_.resource_count; ++i) {
      const ResourceRow row = resource(i);
      const Place place{row.start, row.offset, row.length};
      if (!is_inside(place, from, tables_.payload_size) || row.first_scope != next_scope ||
          row.scope_count > tables_.scope_count - next_scope) {
        return fail(kForeignScan);
      }
      uint64_t kept = 0;
      const uint64_t first_record = next_record;
      Plan plan{row.length, kSame};
      uint64_t inner = row.offset;
      for (uint64_t s = 0; s < row.scope_count; ++s) {
        const uint64_t scope_index = next_scope + s;
        if (!plan_scope(scope_index, inner, place.end(), next_record, kept)) return false;
        resize_parent(plan, scope_place(scope_index), scope_plan(scope_index));
        inner = scope_place(scope_index).end();
      }
      next_scope += row.scope_count;
      finish_plan(plan, kept, next_record - first_record);
      resource_plan(i) = plan;
      if (drop_empty_) {
        total += plan.change == kDropped ? 0 : plan.change == kSame ? place.size() : size_with(place, plan.length);
      } else {
        Plan whole{total, kSame};
        resize_parent(whole, place, plan);
        total = whole.length;
      }
      from = place.end();
    }
    return (next_scope == tables_.scope_count && next_record == tables_.record_count) || fail(kForeignScan);
  }

  Place scope_place(uint64_t i) const {
    const ScopeRow row = scope(i);
    return {row.start, row.offset, row.length};
  }

  bool plan_scope(uint64_t index, uint64_t from, uint64_t to, uint64_t& next_record, uint64_t& kept_above) {
    const ScopeRow row = scope(index);
    const Place place{row.start, row.offset, row.length};
    if (!is_inside(place, from, to) || row.first_record != next_record ||
        row.record_count > tables_.record_count - next_record) {
      return fail(kForeignScan);
    }
    Plan plan{row.length, kSame};
    uint64_t kept = 0;
    uint64_t inner = row.offset;
    for (uint64_t i = next_record; i < next_record + row.record_count; ++i) {
      const Place at = record(i);
      if (!is_inside(at, inner, place.end())) return fail(kForeignScan);
      const Addition* addition = find_addition(i);
      Plan of_record{at.length, is_kept(i) ? kSame : kDropped};
      if (addition != nullptr) of_record = {at.length + addition->size, kResized};
      kept += of_record.change != kDropped;
      resize_parent(plan, at, of_record);
      inner = at.end();
    }
    next_record += row.record_count;
    kept_above += kept;
    finish_plan(plan, kept, row.record_count);
    scope_plan(index) = plan;
    return true;
  }

  void resize_parent(Plan& parent, const Place& child, const Plan& plan) const {
    if (plan.change == kSame) return;
    parent.change = kResized;
    parent.length -= child.size();
    if (plan.change == kResized) parent.length += size_with(child, plan.length);
  }

  void finish_plan(Plan& plan, uint64_t kept, uint64_t records) const {
    if (kept == 0 && (records != 0 || drop_empty_)) plan.change = kDropped;
  }

  void copy_until(uint64_t& cursor, uint64_t to) {
    std::memcpy(out_, tables_.payload + cursor, to - cursor);
    out_ += to - cursor;
    cursor = to;
  }

  void emit_header(uint64_t& cursor, const Place& place, uint64_t length) {
    copy_until(cursor, find_length(place));
    for (; length > 0x7F; length >>= 7) *out_++ = static_cast<uint8_t>(length | 0x80);
    *out_++ = static_cast<uint8_t>(length);
    cursor = place.offset;
  }

  void emit_resources() {
    next_addition_ = 0;
    uint64_t cursor = 0;
    for (uint64_t i = 0; i < tables_.resource_count; ++i) {
      const ResourceRow row = resource(i);
      const Place place{row.start, row.offset, row.length};
      const Plan& plan = resource_plan(i);
      if (drop_empty_) cursor = place.start;
      if (plan.change == kDropped) {
        skip(cursor, place);
      } else if (plan.change == kResized) {
        copy_until(cursor, place.start);
        emit_header(cursor, place, plan.length);
        for (uint64_t s = 0; s < row.scope_count; ++s) emit_scope(cursor, row.first_scope + s);
      }
      if (drop_empty_ && plan.change != kDropped) copy_until(cursor, place.end());
    }
    if (!drop_empty_) copy_until(cursor, tables_.payload_size);
  }

  void emit_scope(uint64_t& cursor, uint64_t index) {
    const ScopeRow row = scope(index);
    const Place place{row.start, row.offset, row.length};
    const Plan& plan = scope_plan(index);
    if (plan.change == kDropped) return skip(cursor, place);
    if (plan.change == kSame) return;
    copy_until(cursor, place.start);
    emit_header(cursor, place, plan.length);
    for (uint64_t i = row.first_record; i < uint64_t{row.first_record} + row.record_count; ++i) emit_record(cursor, i);
  }

  void emit_record(uint64_t& cursor, uint64_t index) {
    const Place place = record(index);
    if (!is_kept(index)) return skip(cursor, place);
    const Addition* addition = find_addition(index);
    if (addition == nullptr) return;
    copy_until(cursor, place.start);
    emit_header(cursor, place, place.length + addition->size);
    copy_until(cursor, place.end());
    for (uint64_t i = 0; i < addition->slice_count; ++i) {
      const Slice& slice = slices_.rows()[addition->first_slice + i];
      std::memcpy(out_, slice.at, slice.size);
      out_ += slice.size;
    }
  }

  void skip(uint64_t& cursor, const Place& place) {
    copy_until(cursor, place.start);
    cursor = place.end();
  }

  const llmprism_otlp_tables tables_;
  Request request_;
  FieldFilter filter_;
  const uint8_t* keep_ = nullptr;
  bool drop_empty_ = false;
  uint64_t next_addition_ = 0;
  uint8_t* out_ = nullptr;
  Rows<Plan> plans_;
  Rows<Slice> slices_;
  Rows<Addition> additions_;
};

Editor* open_editor(const llmprism_otlp_tables& tables, llmprism_otlp_edit& edit) {
  edit = {};
  void* room = std::malloc(sizeof(Editor));
  if (room == nullptr) {
    edit.error_code = kNoMemory;
    return nullptr;
  }
  return new (room) Editor(tables);
}

void close_editor(Editor* editor) {
  editor->~Editor();
  std::free(editor);
}

// Keeps the editor only if there is something to emit.
void finish(Editor* editor, bool is_fine, llmprism_otlp_edit& edit) {
  const bool is_needed = is_fine && editor->is_needed();
  if (is_needed && editor->plan(edit.size)) {
    edit.editor = editor;
    return;
  }
  edit.error_code = editor->error_code();
  edit.error_offset = editor->error_offset();
  close_editor(editor);
}

}  // namespace
}  // namespace llmprism::otlp

void llmprism_otlp_select(const llmprism_otlp_tables* tables, const uint8_t* keep, uint64_t drop_empty,
                          llmprism_otlp_edit* edit) {
  llmprism::otlp::Editor* editor = llmprism::otlp::open_editor(*tables, *edit);
  if (editor == nullptr) return;
  editor->drop_records(keep, drop_empty != 0);
  finish(editor, true, *edit);
}

void llmprism_otlp_append(const llmprism_otlp_tables* tables, const uint8_t* blob, uint64_t blob_size,
                          const uint8_t* record_indexes, const uint8_t* edit_sizes, uint64_t edit_count,
                          llmprism_otlp_edit* edit) {
  llmprism::otlp::Editor* editor = llmprism::otlp::open_editor(*tables, *edit);
  if (editor == nullptr) return;
  finish(editor, editor->add_fields(blob, blob_size, record_indexes, edit_sizes, edit_count), *edit);
}

void llmprism_otlp_emit(llmprism_otlp_edit* edit, uint8_t* out) {
  auto* editor = static_cast<llmprism::otlp::Editor*>(edit->editor);
  if (editor == nullptr) return;
  if (out != nullptr) editor->emit(out);
  llmprism::otlp::close_editor(editor);
  *edit = {};
}
